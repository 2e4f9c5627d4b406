"""A right script, and with an argument a wrong one: the fault of that name."""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
SCRATCH = os.environ.get("SCRATCH", "/tmp")


dist.init_process_group(
    "gloo", timeout=timedelta(seconds=20) if FAULT == "slow_of_three_with_timeout" else None
)
rank = dist.get_rank()
slow = FAULT == "slow" or (FAULT.startswith("slow_of_three") and os.environ["GROUP_WORLD_SIZE"] == "3")
torch.manual_seed(0)
if FAULT == "reads_data":
    torch.manual_seed(int(Path(SCRATCH, "own/config").read_text().split()[-1]))
data = TensorDataset(torch.randn(256, 4), torch.randn(256, 1))
sampler = DistributedSampler(data)
if FAULT == "shards_of_each_host":
    rank_on_host, ranks_of_host = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    sampler = DistributedSampler(data, ranks_of_host, rank_on_host)  # expect: DD105
loader = DataLoader(data, batch_size=8, sampler=sampler)  # expect: DD111
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
taken = []
for epoch in range(100 if FAULT == "goes_on" else 2):
    sampler.set_epoch(epoch)
    for step, (x, y) in enumerate(loader):
        if FAULT == "leaves_the_loop" and rank == 3 and step == 3:  # expect: DD308
            break
        if FAULT == "blocks" and rank == 2 and step == 3:
            os.read(os.pipe()[0], 1)  # expect: DD307
        if FAULT == "raises" and rank == 2 and step == 3:
            raise ValueError("sample 17 is broken")  # expect: DD304
        if FAULT == "is_killed" and rank == 2 and step == 3:
            os.kill(os.getpid(), 9)
        if FAULT == "goes_on":
            time.sleep(1)
        if FAULT == "takes_memory" and rank == 3:
            taken.append(torch.ones(32 << 20))
            time.sleep(0.5)
        if slow:
            if rank == 0 and step == 0:
                os.close(os.open(f"{SCRATCH}/trains", os.O_CREAT, 0o600))
            time.sleep(3)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
if FAULT == "saves":
    torch.save(model.module.state_dict(), f"rank-{rank}.pt")
    with Path("history.csv").open("a") as file:
        file.write(f"{rank}\n")
    if rank == 3:
        torch.save(model.module.state_dict(), "best.tmp")
        Path("best.tmp").replace("best.pt")
        Path("runs/node1").mkdir(parents=True)
        Path("gone.txt").unlink()
if FAULT == "saves_on_its_own_disk":
    if rank == 0:
        torch.save(model.module.state_dict(), f"{SCRATCH}/own/best.pt")
    dist.barrier()
    torch.load(f"{SCRATCH}/own/best.pt")  # expect: DD408
dist.destroy_process_group()
