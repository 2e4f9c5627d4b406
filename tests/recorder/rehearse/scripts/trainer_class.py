# ruff: noqa - written as users write
"""A Trainer with snapshots that resumes itself, on the device that its environment names."""

import os

import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, model, data, optimizer, path):
        self.gpu_id = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.model = model.to(self.gpu_id)
        self.data, self.optimizer, self.path, self.epochs_run = data, optimizer, path, 0
        if os.path.exists(path):
            self._load_snapshot()
        self.model = DDP(self.model, device_ids=[self.gpu_id])

    def _load_snapshot(self):
        snapshot = torch.load(self.path, map_location=f"cuda:{self.gpu_id}")
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.model(source), targets)
        loss.backward()
        self.optimizer.step()

    def train(self, most):
        for epoch in range(self.epochs_run, most):
            self.data.sampler.set_epoch(epoch)
            for source, targets in self.data:
                self._run_batch(source.to(self.gpu_id), targets.to(self.gpu_id))
            if self.global_rank == 0:
                torch.save(
                    {"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch + 1}, self.path
                )


def main(path):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    init_process_group(backend="nccl")
    for most in (1, 2):
        model = torch.nn.Linear(20, 1)
        dataset = TensorDataset(torch.rand(32, 20), torch.rand(32, 1))
        data = DataLoader(
            dataset, batch_size=8, pin_memory=True, shuffle=False, sampler=DistributedSampler(dataset)
        )
        trainer = Trainer(model, data, torch.optim.SGD(model.parameters(), lr=1e-3), path)
        torch.distributed.barrier(device_ids=[trainer.gpu_id])
        trainer.train(most)
        torch.distributed.barrier()
    assert trainer.epochs_run == 1
    destroy_process_group()


if __name__ == "__main__":
    main(os.path.join(os.environ.get("FOLDER", "."), "snapshot.pt"))
