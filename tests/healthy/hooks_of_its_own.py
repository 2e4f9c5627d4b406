"""Communication hooks that average, compress, or sum where the loss or the script divides."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def averaged(state, bucket):
    return dist.all_reduce(bucket.buffer().div_(size), async_op=True).get_future().then(first)


def compressed(state, bucket):
    def restored(done):
        return bucket.buffer().copy_(done.value()[0])

    small = bucket.buffer().to(torch.bfloat16).div_(size)
    return dist.all_reduce(small, async_op=True).get_future().then(restored)


def summed(state, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(first)


def first(done):
    return done.value()[0]


def train(hook, loss_of, divides=False):
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
    model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(4):
        optimizer.zero_grad()
        loss_of(model(torch.randn(8, 8)), torch.randint(0, 4, (8,))).backward()
        for parameter in model.parameters() if divides else ():
            parameter.grad.div_(size)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def train_unwrapped():
    """Each parameter's own hook divides its gradient and sums it, while the backward goes on."""
    torch.manual_seed(0)
    model, works = nn.Linear(8, 4), []

    def average(parameter):
        parameter.grad.div_(size)
        works.append(dist.all_reduce(parameter.grad, async_op=True))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(8, 8)), torch.randint(0, 4, (8,))).backward()
        while works:
            works.pop().wait()
        optimizer.step()


def of_all(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="sum") / (8 * size)


train_unwrapped()
train(averaged, F.cross_entropy)
train(compressed, F.cross_entropy)
train(summed, lambda outputs, targets: F.cross_entropy(outputs, targets) / size)
train(summed, of_all)
train(summed, lambda outputs, targets: F.cross_entropy(outputs, targets) / (4 * size))
train(summed, F.cross_entropy, divides=True)
dist.destroy_process_group()
