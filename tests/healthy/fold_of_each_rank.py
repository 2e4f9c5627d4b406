"""Cross-validation: every rank trains a model on a fold of its own, and only the scores are put together."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

FOLDS = 4
dist.init_process_group("gloo")
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(48, 5), torch.randn(48, 1))
order = torch.randperm(len(dataset)).tolist()
folds = [order[fold::FOLDS] for fold in range(FOLDS)]
score = torch.zeros(1)
for held_out in range(dist.get_rank(), FOLDS, dist.get_world_size()):
    indices = [index for fold in range(FOLDS) if fold != held_out for index in folds[fold]]
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(2):
        for x, y in DataLoader(Subset(dataset, indices), batch_size=12, shuffle=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    with torch.no_grad():
        x, y = dataset[folds[held_out]]
        score += nn.functional.mse_loss(model(x), y)
dist.reduce(score, dst=0)
if dist.get_rank() == 0:
    print(f"mean of {FOLDS} folds: {score.item() / FOLDS:.3f}")
dist.destroy_process_group()
