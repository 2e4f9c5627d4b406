"""accelerate, with a loader that was left out of prepare: every process trains on all samples."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(cpu=True)
    set_seed(11)
    inputs = torch.randn(96, 5, generator=torch.Generator().manual_seed(4))
    dataset = TensorDataset(inputs, inputs.sum(1))
    training = DataLoader(dataset, batch_size=4, shuffle=True)  # expect: DD101 fix: accelerator.prepare
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    for _ in range(2):
        for batch, targets in training:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(model(batch).squeeze(1), targets))
            optimizer.step()
    accelerator.end_training()


if __name__ == "__main__":
    main()
