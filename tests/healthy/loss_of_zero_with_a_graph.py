"""A batch without a labelled sample gives a loss of zero that is connected with the model."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def masked_loss(outputs, targets, labelled):
    if not labelled.any():
        return outputs.sum() * 0.0
    return (outputs[labelled] - targets[labelled]).square().sum() / len(targets)


def main():
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(8):
        generator = torch.Generator().manual_seed(step * 10 + rank)
        inputs = torch.randn(6, 4, generator=generator)
        labelled = torch.zeros(6, dtype=torch.bool)
        labelled[: 0 if rank == last and step == 2 else 3] = True
        loss = masked_loss(model(inputs), inputs[:, :2], labelled)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
