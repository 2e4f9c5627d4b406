# ruff: noqa - written as users write
"""Random batches by step, autocast in float16, GradScaler, accumulation by the wrapper's flag, torch.compile."""

import math
import os
from contextlib import nullcontext

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

backend = "nccl"
device = "cuda"
dtype = "bfloat16" if torch.cuda.is_available() and os.environ.get("WANT") == "bf16" else "float16"
accumulation, block, batch = 4, 8, 4


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.attend(self.norm(x)).split(c, dim=2)
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=None, dropout_p=0.1 if self.training else 0, is_causal=True
        )
        return x + self.drop(self.project(y.transpose(1, 2).contiguous().view(b, t, c)))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(32, 16), nn.Embedding(block, 16)
        self.h = nn.ModuleList(Block(16, 2) for _ in range(2))
        self.head = nn.Linear(16, 32, bias=False)
        self.wte.weight = self.head.weight

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.wte(idx) + self.wpe(pos)
        for layer in self.h:
            x = layer(x)
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, 32), targets.view(-1), ignore_index=-1)


def get_batch(data):
    starts = torch.randint(len(data) - block, (batch,))
    x = torch.stack([data[i : i + block] for i in starts])
    y = torch.stack([data[i + 1 : i + 1 + block] for i in starts])
    if device_type == "cuda":
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x.to(device), y.to(device)


ddp = int(os.environ.get("RANK", -1)) != -1
assert ddp
init_process_group(backend=backend)
rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
device = f"cuda:{local_rank}"
torch.cuda.set_device(device)
accumulation //= int(os.environ["WORLD_SIZE"])
torch.manual_seed(1337 + rank)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
device_type = "cuda" if "cuda" in device else "cpu"
kind = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
ctx = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=kind)
tokens = torch.arange(200) % 32
model = GPT().to(device)
scaler = torch.cuda.amp.GradScaler(enabled=(dtype == "float16"))
matrices = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": matrices}, {"params": rest, "weight_decay": 0.0}], lr=1e-2, fused=True
)
model = DDP(torch.compile(model), device_ids=[local_rank])
losses = []
for step in range(6):
    for group in optimizer.param_groups:
        group["lr"] = 1e-2 * (0.5 + 0.5 * math.cos(step / 6))
    for micro in range(accumulation):
        model.require_backward_grad_sync = micro == accumulation - 1
        with ctx:
            logits, loss = model(*get_batch(tokens))
            loss = loss / accumulation
        scaler.scale(loss).backward()
    assert logits.dtype is kind
    assert loss.dtype is torch.float32
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.item() * accumulation)
assert losses[-1] < losses[0]
assert next(iter(model.module.state_dict())).startswith("_orig_mod.")
destroy_process_group()
