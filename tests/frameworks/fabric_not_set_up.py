"""Fabric, with a loader that was never given to setup_dataloaders."""

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    fabric = Fabric(accelerator="cpu", strategy="ddp", devices=2)
    fabric.launch()
    torch.manual_seed(0)
    inputs = torch.randn(96, 4, generator=torch.Generator().manual_seed(2))
    dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    data = DataLoader(dataset, batch_size=8)  # expect: DD101 fix: setup_dataloaders
    network = nn.Linear(4, 1)
    model, optimizer = fabric.setup(network, torch.optim.Adam(network.parameters(), lr=1e-3))
    for _ in range(3):
        for batch, targets in data:
            optimizer.zero_grad()
            fabric.backward(nn.functional.mse_loss(model(batch), targets))
            optimizer.step()


if __name__ == "__main__":
    main()
