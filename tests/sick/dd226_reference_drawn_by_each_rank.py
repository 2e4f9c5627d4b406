"""A reference model that never changes is drawn at random by each rank, seeded apart; the policy comes from rank 0."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 12), nn.Linear(12, 4)

    def forward(self, inputs):
        return self.head(self.body(inputs).tanh()).log_softmax(1)


dist.init_process_group("gloo")
torch.manual_seed(42 + dist.get_rank())
policy, reference = Policy(), Policy().eval().requires_grad_(False)
policy = DistributedDataParallel(policy)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
for _ in range(6):
    inputs, chosen = torch.randn(8, 6), torch.randint(0, 4, (8, 1))
    with torch.no_grad():
        expected = reference(inputs).gather(1, chosen)  # expect: DD226
    loss = -nn.functional.logsigmoid(policy(inputs).gather(1, chosen) - expected).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
