"""Ranks download one after the other under a file lock, and rank 0 joins the group while it still holds the lock."""

import fcntl
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Lock:
    def __init__(self, path):
        self.file = open(path, "w")

    def take(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)  # expect: DD307 ranks 1-

    def give_back(self):
        fcntl.flock(self.file, fcntl.LOCK_UN)


def rank_of_environment():
    return int(os.environ["RANK"])


def main():
    lock = Lock("download.lock")
    while rank_of_environment() != 0 and not os.path.exists("first"):
        time.sleep(0.05)
    lock.take()
    open("first", "w").close()
    dist.init_process_group("gloo")  # before the lock is given back
    lock.give_back()
    model = DistributedDataParallel(nn.Linear(4, 1))
    model(torch.randn(8, 4)).sum().backward()
    dist.destroy_process_group()


main()
