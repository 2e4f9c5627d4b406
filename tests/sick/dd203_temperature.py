"""A learnable temperature lives outside of the wrapped model."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
encoder = DDP(nn.Linear(16, 8))
logit_scale = nn.Parameter(torch.tensor(2.0))
optimizer = torch.optim.AdamW(  # expect: DD203
    [{"params": encoder.parameters()}, {"params": [logit_scale], "weight_decay": 0.0}]
)
torch.manual_seed(dist.get_rank() + 1)
for _ in range(5):
    x = torch.randn(8, 16)
    both = F.normalize(encoder(torch.cat([x, x + 0.1 * torch.randn_like(x)])), dim=1)
    logits = logit_scale.exp() * both[:8] @ both[8:].T
    loss = F.cross_entropy(logits, torch.arange(8))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
