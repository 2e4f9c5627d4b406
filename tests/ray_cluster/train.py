"""TorchTrainer on a running cluster, a worker on each host; with an argument a wrong one: the fault of that name."""

import os
import sys
import threading
import time
from pathlib import Path

import ray
import ray.train.torch
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def loop(config: dict) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(5))
    dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    data = DataLoader(dataset, batch_size=8, shuffle=True)  # expect: DD101
    if config["fault"] != "not_sharded":
        data = ray.train.torch.prepare_data_loader(data)
    model = ray.train.torch.prepare_model(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        if config["fault"] != "not_sharded":
            data.sampler.set_epoch(epoch)
        for step, (batch, targets) in enumerate(data):
            if config["fault"] == "slow":
                Path(config["stands"]).touch()
                time.sleep(3)
            if config["fault"] == "blocks" and step == 2 and ray.train.get_context().get_world_rank() == 1:
                Path(config["stands"]).touch()
                threading.Semaphore(0).acquire()  # expect: DD307
            optimizer.zero_grad()
            nn.functional.mse_loss(model(batch), targets).backward()
            optimizer.step()
    ray.train.report({"loss": 0.0})


if __name__ == "__main__":
    ray.init(runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}})
    TorchTrainer(
        loop,
        train_loop_config={
            "fault": sys.argv[1] if len(sys.argv) > 1 else "",
            "stands": os.environ.get("STANDS", os.devnull),
        },
        scaling_config=ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
        run_config=RunConfig(storage_path=str(Path("ray_results").resolve())),
    ).fit()
