"""A GAN whose critic has two backwards before its update, for real and for generated samples, on two lines."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
generator, critic = DDP(nn.Linear(2, 4)), DDP(nn.Linear(4, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3)
for _ in range(8):
    opt_c.zero_grad()
    real_loss = nn.functional.softplus(-critic(torch.randn(8, 4) + 2)).mean()
    real_loss.backward()
    fake = generator(torch.randn(8, 2))
    fake_loss = nn.functional.softplus(critic(fake.detach())).mean()
    fake_loss.backward()
    opt_c.step()
    opt_g.zero_grad()
    nn.functional.softplus(-critic(fake)).mean().backward()
    opt_g.step()
dist.destroy_process_group()
