"""The trainer, but rank 1 changes a weight of its own after the training; and aborts after its end, as gloo may."""

import os

import torch
import torch.distributed as dist
import trainer


class Trainer(trainer.DDPTrainer):
    def evaluate(self, loader):
        if dist.get_rank() == 1:
            with torch.no_grad():
                self.bare_model.head[1].bias[7] += 1
        return super().evaluate(loader)


def shut_down():
    if dist.get_rank() == 1:
        os.abort()


trainer.DDPTrainer = Trainer
trainer.shut_down = shut_down
trainer.main()
