"""One process of a rehearsal that looks closely: what is faithful, and that undoing leaves nothing. Run by its test."""

import copy
import importlib
import os
import sys
import threading
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="2")

import pytest
import ranks
import torch
import torch._dynamo  # it replaces functions of torch on its own
import torch.nn.functional as F  # noqa: N812
from torch import nn

names = {
    module: dict(vars(module)) for module in (torch, torch._C, torch.cuda, torch.distributed, torch.autograd)
}
undo = ranks.rehearsal().install(lambda event: None)
Where = importlib.import_module("_private_recorder.where").Where

# Views, gradients, copies and what is made of them stay where they belong.
host = torch.arange(6.0)
gpu = host.to("cuda:1")
gpu[0] = 9
assert host[0] == 0, "a tensor on the GPU is a copy"
assert gpu.to("cuda:1") is gpu
assert gpu[1:].device == (gpu + 1).device == copy.deepcopy(gpu).device == torch.device("cuda", 1)
assert not host.copy_(gpu).is_cuda
assert not host.expand_as(gpu).is_cuda
assert not torch.tensor([1.0, 2.0]).is_cuda
assert not gpu.cpu().is_cuda

# A lazy module's parameters are on a GPU before they have a shape, and afterwards.
lazy = nn.LazyLinear(2).to("cuda:1")
assert lazy.weight.device == torch.device("cuda", 1)
assert lazy(torch.ones(1, 3, device="cuda:1")).device == lazy.weight.device == torch.device("cuda", 1)
assert nn.LazyConv2d(3, 1).bias.device == torch.device("cpu")

# A GPU counts integers too.
counts = torch.arange(4).to("cuda:0").histc(bins=2, min=0, max=3)
assert counts.device.type == "cuda"
assert (counts.dtype, counts.tolist()) == (torch.int64, [2, 2])
assert torch.histc(gpu, 2).is_cuda

# Lengths of packed sequences are on the CPU, as they are where there are GPUs.
padded, lengths = torch.ones(2, 3, 4, device="cuda:1", requires_grad=True), torch.tensor([3, 2])
packed = nn.utils.rnn.pack_padded_sequence(padded, lengths, batch_first=True)
assert packed.data.device == torch.device("cuda", 1)
assert not packed.batch_sizes.is_cuda
with warnings.catch_warnings():
    warnings.simplefilter("error")  # cuDNN is missed by nobody
    recurrent = nn.LSTM(4, 5, batch_first=True).to("cuda:1")
unpacked, of_each = nn.utils.rnn.pad_packed_sequence(recurrent(packed)[0])
assert unpacked.device == torch.device("cuda", 1)
assert not of_each.is_cuda
unpacked.sum().backward()
assert padded.grad.device == torch.device("cuda", 1)

# Hooks and recomputed parts run inside backward, and see GPUs there too.
seen = []
weight = torch.ones(3, device="cuda", requires_grad=True)
weight.register_hook(lambda grad: seen.append((grad.device, torch.zeros(1, device="cuda").is_cuda)))
(weight * 2).sum().backward()
assert seen == [(torch.device("cuda", 0), True)]
assert weight.grad.is_cuda
thread = threading.Thread(target=lambda: seen.append(torch.ones(1).cuda().is_cuda))
thread.start()
thread.join()
assert seen[-1] is True

# A GPU that nobody seeded draws other numbers in each process, as a generator that is made draws the same.
assert torch.cuda.default_generators[0].initial_seed() != torch.Generator().initial_seed()

# What is drawn on a GPU leaves the CPU's stream alone, and repeats with the GPU's seed.
torch.manual_seed(1)
expected = torch.rand(2)
torch.manual_seed(1)
torch.cuda.manual_seed(5)
first = torch.randn(3, device="cuda")
F.dropout(first)
nn.init.normal_(first.clone())
assert torch.equal(torch.rand(2), expected)
torch.cuda.manual_seed(5)
assert torch.equal(torch.randn(3, device="cuda"), first)

# Autocast casts as on a GPU: products in float16, which overflow, and losses in float32.
with torch.autocast("cuda", dtype=torch.float16):
    product = torch.full((2, 2), 300.0, device="cuda") @ torch.full((2, 2), 300.0, device="cuda")
    assert product.dtype is torch.float16
    assert product.isinf().all()
    assert F.softmax(torch.ones(2, device="cuda", dtype=torch.half), dim=0).dtype is torch.float32
    with pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(torch.full((1,), 0.5, device="cuda"), torch.ones(1, device="cuda"))

# GradScaler skips the step whose gradients overflowed, and halves its scale.
layer = nn.Linear(1, 1, bias=False).cuda()
before = layer.weight.detach().clone()
optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**16)
with torch.autocast("cuda", dtype=torch.float16):
    loss = (layer(torch.full((1, 1), 1000.0, device="cuda")) * 60).sum()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
assert torch.equal(layer.weight, before)
assert scaler.get_scale() == 2.0**15

# SyncBatchNorm's kernels compute what BatchNorm does, where there is one rank.
data = torch.randn(4, 3, 5)
plain, kernels = nn.BatchNorm1d(3), torch.randn(4, 3, 5).cuda()
mean, invstd = torch.batch_norm_stats(data.cuda(), 1e-5)
normalized = torch.batch_norm_elemt(data.cuda(), plain.weight, plain.bias, mean, invstd, 1e-5)
assert torch.allclose(normalized.cpu(), plain(data), atol=1e-5)
count = torch.tensor([20.0])
running = [torch.zeros(3), torch.ones(3)]
torch.batch_norm_gather_stats_with_counts(data.cuda(), mean[None], invstd[None], *running, 0.1, 1e-5, count)
assert torch.allclose(running[1], plain.running_var, atol=1e-5)
leaf = data.clone().requires_grad_()
upstream = torch.randn(4, 3, 5)
nn.BatchNorm1d(3)(leaf).backward(upstream)
sums = torch.batch_norm_backward_reduce(
    upstream.cuda(), data.cuda(), mean, invstd, plain.weight, True, True, True
)
slope = torch.batch_norm_backward_elemt(
    upstream.cuda(), data.cuda(), mean, invstd, plain.weight, sums[0], sums[1], count.int()
)
assert torch.allclose(slope.cpu(), leaf.grad, atol=1e-5)

with pytest.raises(RuntimeError, match="CUDA error: invalid device ordinal"):
    torch.cuda.set_device(2)

# What torch refuses, and what a GPU would, is the script's; what breaks in the rehearsal is the rehearsal's.
replacing = importlib.import_module("_private_recorder.rehearse.replacing")
own = {}
for call in (
    lambda: torch.ones(2, device="cuda") @ torch.ones(3, device="cuda"),
    lambda: F.cross_entropy(torch.ones(2, 3, device="cuda"), torch.tensor([5, 5]).cuda()),
    lambda: torch.ones(2, device="cuda", requires_grad=True).backward(),
    lambda: torch.cuda.set_device(2),
    lambda: torch.cuda.default_generators["first"],
):
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is
        trace = traceback.extract_tb(error.__traceback__)
        frames = [Where(frame.filename, frame.lineno, frame.name) for frame in trace]
        own[call] = replacing.is_own_fault(str(error), frames, lambda file: file != __file__)
assert list(own.values()) == [False, False, False, False, True]

# A forked child, such as a DataLoader worker, has no use of the GPUs that its parent uses.
child = os.fork()
if child == 0:
    try:
        torch.ones(1).cuda()
    except RuntimeError as error:
        os._exit("Cannot re-initialize CUDA in forked subprocess" not in str(error))
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0, "CUDA refuses a forked child"

# A backend that torch does not have is refused as it is with GPUs.
with pytest.raises((AssertionError, ValueError), match=r"Unknown .*backend"):
    torch.distributed.init_process_group("tcp", store=torch.distributed.HashStore(), rank=0, world_size=1)

undo()
for module, before_it in names.items():
    after = dict(vars(module))
    changed = {name for name in before_it if after.get(name) is not before_it[name]}
    assert not changed, (module, changed)
assert not torch.cuda.is_available()
assert str(torch.ones(1).device) == "cpu"
print("faithful")
