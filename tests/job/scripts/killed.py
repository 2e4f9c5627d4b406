"""The trainer, but the kernel runs out of memory and chooses rank 1."""

import os
import signal

import models
import torch.distributed as dist
import trainer


class Model(models.ByteTransformer):
    def forward(self, inputs):
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(inputs)


models.ByteTransformer = Model
trainer.main()
