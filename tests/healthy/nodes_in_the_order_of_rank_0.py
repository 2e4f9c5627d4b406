"""Without a DataLoader, each rank takes its part of the nodes of a graph, in the order that rank 0 drew."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.output = nn.Linear(16, 8), nn.Linear(8, 3)

    def forward(self, features, neighbours):
        means = features[neighbours].mean(1)
        return self.output(torch.relu(self.hidden(torch.cat([features, means], -1))))


def main():
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    chosen = torch.Generator().manual_seed(4)
    features = torch.randn(60, 8, generator=chosen)
    neighbours = torch.randint(0, 60, (60, 4), generator=chosen)
    classes = torch.randint(0, 3, (60,), generator=chosen)
    model = DistributedDataParallel(Graph())
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        nodes = torch.randperm(60)
        dist.broadcast(nodes, src=0)
        for batch in nodes.chunk(ranks)[rank].split(10):
            loss = nn.functional.cross_entropy(model(features, neighbours)[batch], classes[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


main()
