# ruff: noqa - written as users write
"""An old script: --local_rank, torch.cuda.FloatTensor, Variable, type strings, DataParallel beside the wrapper."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.autograd import Variable

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank", type=int, default=int(os.environ["LOCAL_RANK"]))
args = parser.parse_args()
torch.cuda.set_device(args.local_rank)
dist.init_process_group(backend="nccl", init_method="env://")
LongTensor = torch.cuda.LongTensor if torch.cuda.is_available() else torch.LongTensor
numbers = LongTensor([1, 2, 3])
assert numbers.is_cuda and isinstance(numbers, torch.cuda.LongTensor)
x = Variable(torch.rand(4, 3).type(torch.cuda.FloatTensor))
assert x.type() == "torch.cuda.FloatTensor" and x.type(torch.DoubleTensor).device.type == "cpu"
assert x.new(2, 2).is_cuda and x.new_zeros(2).get_device() == args.local_rank
model = torch.nn.parallel.DistributedDataParallel(torch.nn.LSTM(3, 4).cuda(), device_ids=[args.local_rank])
model.module.flatten_parameters()
h = (torch.zeros(1, 4, 4).cuda(), torch.zeros(1, 4, 4).type_as(x))
out, _ = model(x[None], h)
out.mean().backward()
plain = torch.nn.DataParallel(torch.nn.Linear(3, 2)).cuda()
assert plain(x).is_cuda
with torch.cuda.device(args.local_rank), torch.cuda.device_of(x):
    assert torch.cuda.current_device() == args.local_rank
torch.set_default_tensor_type("torch.cuda.FloatTensor")
assert torch.zeros(1).is_cuda
torch.set_default_tensor_type("torch.FloatTensor")
assert not torch.zeros(1).is_cuda
t = dist.ReduceOp.SUM
total = x.detach().clone()
dist.all_reduce(total, op=t)
dist.destroy_process_group()
