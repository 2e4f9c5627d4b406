"""What the helpers of the trainer do between real ranks; rank 0 prints what was seen."""

import copy
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "sample_trainer"))

import torch
import torch.distributed as dist
import trainer
from config import TrainerError, read_config
from distributed import all_or_none, set_up, shut_down
from progress import Progress
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def seen_buckets(wrapped):
    """The parameters of each bucket in their order, as a communication hook sees them in the last step."""
    seen = []

    def hook(state, bucket):
        seen.append(bucket.parameters())
        return (
            dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
            .get_future()
            .then(lambda future: future.value()[0])
        )

    wrapped.register_comm_hook(None, hook)
    return seen


def gradients_by_hand():
    """Whether sync_gradients gives DDP's bits: in the first step, and with the layout of a later one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 500), nn.Tanh(), nn.Linear(500, 700), nn.Tanh(), nn.Linear(700, 11))
    alone, watched = copy.deepcopy(model), copy.deepcopy(model)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=1)
    watcher = DistributedDataParallel(watched, bucket_cap_mb=1)
    buckets = seen_buckets(watcher)
    torch.manual_seed(dist.get_rank() + 1)
    equal = []
    for step in range(3):
        inputs = torch.randn(17, 300)
        buckets.clear()
        for one in (wrapped, watcher, alone):
            one.zero_grad()
            one(inputs).square().sum().backward()
        layout = None
        if step:
            names = {id(one): name for name, one in watched.named_parameters()}
            mine = dict(alone.named_parameters())
            layout = [[mine[names[id(one)]] for one in bucket] for bucket in buckets]
        trainer.sync_gradients(alone, layout)
        equal.append(
            all(
                torch.equal(a.grad, b.grad)
                for a, b in zip(model.parameters(), alone.parameters(), strict=True)
            )
        )
    return {"equal": equal, "buckets": len(buckets)}


def a_difference():
    """What verify_weight_sync says where one element of one rank differs by its last bit, and where NaN is equal."""
    model = nn.Linear(3, 2)
    trainer.sync_gradients(model)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    with torch.no_grad():
        model.bias[0] = torch.nan
    before = trainer.verify_weight_sync(model)
    if dist.get_rank() == 1:
        with torch.no_grad():
            model.weight[1, 2] = torch.nextafter(model.weight[1, 2], torch.tensor(torch.inf))
    found = trainer.verify_weight_sync(model)
    return {
        "before": before,
        "found": {name: found[name] for name in ("tensor", "element")} if found else None,
    }


def who_tells():
    """An error on some ranks is one of all, told by the first that met it."""
    try:
        with all_or_none():
            if dist.get_rank() > 0:
                raise TrainerError(f"rank {dist.get_rank()} found no text")
    except TrainerError as error:
        return {"text": str(error), "printed_by": error.printed_by}


def judged(losses, **settings):
    """Verdicts on a row of evaluations; rank 1 sees slightly other numbers and has to follow."""
    evaluation = read_config(
        None, [f"evaluation.{name}={value}" for name, value in settings.items()]
    ).evaluation
    progress = Progress()
    return [progress.judge(loss + dist.get_rank() * 0.05, evaluation, torch.device("cpu")) for loss in losses]


if __name__ == "__main__":
    set_up(read_config(None).parallel)
    rank = dist.get_rank()
    said = {
        "mean": trainer.reduce_mean(torch.tensor(10.0 * rank), rank),
        "by_hand": gradients_by_hand(),
        "difference": a_difference(),
        "error": who_tells(),
        "patience": judged([3, 2, 1.98, 1.97, 1.96], patience=2, progress=0.04),
    }
    print(json.dumps(said))
    dist.barrier()
    shut_down()
