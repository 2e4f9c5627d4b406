"""The trainer, but the kernel runs out of memory and chooses rank 1."""

import os
import signal

import torch.distributed as dist
import trainer


class Model(trainer.ByteTransformer):
    def forward(self, inputs):
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(inputs)


trainer.ByteTransformer = Model
trainer.main()
