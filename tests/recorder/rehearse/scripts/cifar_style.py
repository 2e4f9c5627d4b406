# ruff: noqa - written as users write
"""The usual picture classifier: .cuda() without an index after set_device, workers that pin memory, a test pass."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset, DistributedSampler

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
device = torch.device("cuda", local_rank)


class Pictures(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((3, 8, 8), index / 24), index % 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1 = nn.Linear(6 * 3 * 3, 3)

    def forward(self, x):
        return self.fc1(F.dropout(torch.flatten(self.pool(F.relu(self.conv1(x))), 1), training=self.training))


net = nn.parallel.DistributedDataParallel(Net().cuda(), device_ids=[local_rank], output_device=local_rank)
sampler = DistributedSampler(Pictures())
loader = DataLoader(Pictures(), batch_size=4, sampler=sampler, num_workers=1, pin_memory=True, drop_last=True)
optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for epoch in range(2):
    sampler.set_epoch(epoch)
    net.train()
    for inputs, labels in loader:
        assert inputs.is_pinned()
        inputs, labels = inputs.cuda(), labels.cuda()
        optimizer.zero_grad()
        loss = F.cross_entropy(net(inputs), labels)
        loss.backward()
        optimizer.step()
    net.eval()
    correct = torch.zeros(1).to(device)
    with torch.no_grad():
        for inputs, labels in loader:
            outputs = net(inputs.to(device))
            correct += (outputs.argmax(1) == labels.to(device)).sum()
    dist.reduce(correct, dst=0)
    assert correct.device == device
if dist.get_rank() == 0:
    print("correct", int(correct.item()), correct.cpu().tolist())
dist.destroy_process_group()
