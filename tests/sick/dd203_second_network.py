"""Two networks, two optimizers, one wrapper."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.encoder = DistributedDataParallel(nn.Linear(6, 6))
        self.head = nn.Linear(6, 2)
        self.encoder_optimizer = torch.optim.Adam(self.encoder.parameters())
        self.head_optimizer = torch.optim.Adam(self.head.parameters())  # expect: DD203

    def fit(self, batches):
        for inputs, labels in batches:
            self.encoder_optimizer.zero_grad()
            self.head_optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.head(self.encoder(inputs)), labels)
            loss.backward()
            self.encoder_optimizer.step()
            self.head_optimizer.step()


def main():
    dist.init_process_group("gloo")
    trainer = Trainer()
    generator = torch.Generator().manual_seed(dist.get_rank())
    data = [
        (torch.randn(8, 6, generator=generator), torch.randint(0, 2, (8,), generator=generator))
        for _ in range(5)
    ]
    trainer.fit(data)
    dist.destroy_process_group()


main()
