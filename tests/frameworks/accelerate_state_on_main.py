"""save_state of accelerate on the main process only: it waits in there for the others."""

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(accelerator: Accelerator) -> None:
    inputs = torch.randn(64, 5, generator=torch.Generator().manual_seed(4))
    training = DataLoader(TensorDataset(inputs, inputs.sum(1)), batch_size=4, shuffle=True)
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, training = accelerator.prepare(model, optimizer, training)
    for _ in range(2):
        for batch, targets in training:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(model(batch).squeeze(1), targets))
            optimizer.step()
        if accelerator.is_main_process:
            accelerator.save_state()  # expect: DD303 ranks 0 fix: save_state


if __name__ == "__main__":
    set_seed(3)
    train(
        Accelerator(cpu=True, project_config=ProjectConfiguration("kept", automatic_checkpoint_naming=True))
    )
