"""Fabric: the script's own loop, set up by the framework."""

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    fabric = Fabric(accelerator="cpu", strategy="ddp", devices=2)
    fabric.launch()
    fabric.seed_everything(7)
    inputs = torch.randn(96, 4, generator=torch.Generator().manual_seed(2))
    data = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8, shuffle=True)
    data = fabric.setup_dataloaders(data)
    network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    model, optimizer = fabric.setup(network, torch.optim.Adam(network.parameters(), lr=1e-3))
    for epoch in range(3):
        if hasattr(data.sampler, "set_epoch"):
            data.sampler.set_epoch(epoch)
        for batch, targets in data:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(batch), targets)
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
        mean = fabric.all_reduce(loss.detach(), reduce_op="mean")
        fabric.print(f"epoch {epoch}: {mean:.3f}")
        fabric.save("fabric.ckpt", {"model": model, "optimizer": optimizer, "epoch": epoch})


if __name__ == "__main__":
    main()
