"""A hydra application around a plain DDP loop."""

import hydra
import torch
import torch.distributed as dist
from omegaconf import DictConfig
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@hydra.main(version_base=None, config_path=None)
def main(config: DictConfig) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    inputs = torch.randn(64, 4)
    dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    sampler = DistributedSampler(dataset, seed=3)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config.get("lr", 0.01))
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(batch), targets).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
