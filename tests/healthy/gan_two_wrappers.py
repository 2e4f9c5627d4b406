"""A GAN: two wrappers, two optimizers; the generator's step calls the bare discriminator to save a reduction."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
generator = DistributedDataParallel(nn.Linear(3, 5))
discriminator = DistributedDataParallel(nn.Sequential(nn.Linear(5, 8), nn.LeakyReLU(), nn.Linear(8, 1)))
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(8, 1), torch.zeros(8, 1)
for _ in range(5):
    real, fake = torch.randn(8, 5), generator(torch.randn(8, 3))
    of_discriminator.zero_grad()
    answers = discriminator(torch.cat([real, fake.detach()]))
    criterion(answers, torch.cat([ones, zeros])).backward()
    of_discriminator.step()

    of_generator.zero_grad()
    criterion(discriminator.module(fake), ones).backward()
    of_generator.step()
dist.destroy_process_group()
