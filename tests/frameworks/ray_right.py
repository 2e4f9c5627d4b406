"""Ray Train: the loop in workers that Ray starts, on loader and model that it prepared, reports by every rank."""

import os
import tempfile

import ray
import ray.train.torch
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def loop(config: dict) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(5))
    dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    data = DataLoader(dataset, batch_size=8, shuffle=True)
    data = ray.train.torch.prepare_data_loader(data)
    model = ray.train.torch.prepare_model(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for epoch in range(2):
        if ray.train.get_context().get_world_size() > 1:
            data.sampler.set_epoch(epoch)
        for batch, targets in data:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(batch), targets)
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report({"loss": loss.item()}, checkpoint=checkpoint)


if __name__ == "__main__":
    ray.init(num_cpus=3, include_dashboard=False)
    trainer = TorchTrainer(
        loop,
        train_loop_config={"lr": 0.01},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=os.path.abspath("ray_results")),
    )
    trainer.fit()
