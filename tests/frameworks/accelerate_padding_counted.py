"""accelerate's gather, where gather_for_metrics leaves out the samples that were added to even out the batches."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(cpu=True)
    set_seed(11)
    inputs = torch.randn(109, 5, generator=torch.Generator().manual_seed(4))
    labels = inputs[:, :3].argmax(1)
    training = DataLoader(TensorDataset(inputs[:96], labels[:96]), batch_size=4, shuffle=True)
    held_out = DataLoader(TensorDataset(inputs[96:], labels[96:]), batch_size=4)
    model = nn.Linear(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, training = accelerator.prepare(model, optimizer, training)
    held_out = accelerator.prepare(held_out)  # expect: DD501 fix: gather_for_metrics
    for _ in range(2):
        model.train()
        for batch, targets in training:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(batch), targets))
            optimizer.step()
        model.eval()
        hits = []
        for batch, targets in held_out:
            with torch.no_grad():
                right = model(batch).argmax(-1) == targets
                hits.append(accelerator.gather(right))
        accelerator.print(torch.cat(hits).float().mean().item())
    accelerator.end_training()


if __name__ == "__main__":
    main()
