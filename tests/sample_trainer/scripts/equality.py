"""Trains in many ways on small data, and compares each step with a single process on the concatenated batch.

What a step did is recorded from outside: weights before it, batches, gradients after it. Rank 0 gathers that of all
ranks, and computes it again with a plain model and a plain mean. It prints a line of JSON for each way.
"""

import copy
import itertools
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "sample_trainer"))

import torch
import torch.distributed as dist
import trainer
from config import read_config
from data import IGNORED
from distributed import set_up, shut_down
from torch.nn.functional import cross_entropy

CONTEXT, TRAINING, HELD_OUT = 8, 49, 7
BYTES = CONTEXT * TRAINING + 1 + CONTEXT * HELD_OUT + 1
SMALL = (
    "data.source=text",
    f"data.context={CONTEXT}",
    f"data.held_out={(CONTEXT * HELD_OUT + 1.5) / BYTES}",
    "data.batch_size=4",
    "model.width=8",
    "model.heads=2",
    "train.clip=null",
)
WAYS = [
    (f"data.uneven={uneven}", f"train.accumulation={size}")
    for uneven, size in itertools.product(("drop", "pad"), (1, 3))
]
WAYS += [
    ("data.uneven=pad", "data.workers=2"),
    ("data.uneven=pad", "train.accumulation=3", "ddp.find_unused_parameters=true"),
    ("data.uneven=pad", "ddp.static_graph=true", "ddp.gradient_as_bucket_view=true"),
    ("data.uneven=pad", "train.accumulation=2", "model.checkpoint_activations=true"),
]


class Recorded(trainer.DDPTrainer):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.taken = []

    def train_step(self, window):
        before = copy.deepcopy(self.bare_model.state_dict())
        loss, norm, lr = super().train_step(window)
        gradients = [one.grad.clone() for one in self.bare_model.parameters()]
        batches = [tuple(part.clone() for part in batch) for batch in window.batches]
        self.taken.append(
            {
                "epoch": self.progress.epoch,
                "before": before,
                "batches": batches,
                "loss": loss,
                "gradients": gradients,
            }
        )
        return loss, norm, lr


def relative(one, reference):
    return float((one.double() - reference).norm() / reference.norm())


def compare(model, taken):
    """The relative errors of a step's loss and gradient, its samples, and whether all ranks have one gradient."""
    batches = [batch for rank in taken for batch in rank["batches"]]
    inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    weighs = (targets != IGNORED).flatten(1).any(1) if targets.dim() > 1 else targets != IGNORED
    model.load_state_dict(taken[0]["before"])
    alone = model.double()
    loss = cross_entropy(alone(inputs[weighs]).flatten(0, -2), targets[weighs].flatten())
    loss.backward()
    whole = torch.cat([one.grad.flatten() for one in alone.parameters()])
    every = [torch.cat([one.flatten() for one in rank["gradients"]]) for rank in taken]
    return {
        "loss": relative(sum(one["loss"].double() for one in taken) / dist.get_world_size(), loss.detach()),
        "gradient": relative(every[0], whole),
        "samples": [tuple(row) for row in inputs[weighs].flatten(1).tolist()],
        "same": all(torch.equal(one, every[0]) for one in every),
    }


def run(number, words):
    config = read_config(None, [*SMALL, *words, f"run.folder=way{number}"])
    folder = trainer.choose_folder(config)
    material = trainer.load(config.data)
    torch.manual_seed(dist.get_rank())
    one = Recorded(
        config,
        material,
        trainer.create_model(config),
        torch.device("cpu"),
        folder,
    )
    training, held_out = (
        trainer.create_distributed_dataloader(part, config.data, train=train)
        for part, train in ((material.training, True), (material.held_out, False))
    )
    evaluated = one.train(training, held_out)
    difference = trainer.verify_weight_sync(one.bare_model)
    one.save_checkpoint()  # compares all of the state between the ranks
    torch.save([one.taken, difference], folder / f"taken{dist.get_rank()}.pt")
    dist.barrier()
    if dist.get_rank() == 0:
        files = (folder / f"taken{rank}.pt" for rank in range(dist.get_world_size()))
        every, differences = zip(*(torch.load(file, weights_only=True) for file in files), strict=True)
        print(json.dumps(judged(one, material, evaluated, every) | {"words": words}), flush=True)
        assert not any(differences)


def judged(one, material, evaluated, every):
    compared = [
        (ranks[0]["epoch"], compare(copy.deepcopy(one.bare_model), ranks))
        for ranks in zip(*every, strict=True)
    ]
    epochs = [[step for number, step in compared if number == epoch] for epoch in (0, 1)]
    steps = [step for epoch in epochs for step in epoch]
    inputs, targets = map(
        torch.stack, zip(*(material.held_out[n] for n in range(len(material.held_out))), strict=True)
    )
    with torch.no_grad():
        alone = cross_entropy(one.bare_model(inputs).flatten(0, -2).double(), targets.flatten())
    first, second = ([sample for step in epoch for sample in step["samples"]] for epoch in epochs)
    return {
        "steps": [len(taken) for taken in every],
        "loss": max(step["loss"] for step in steps),
        "gradient": max(step["gradient"] for step in steps),
        "same": all(step["same"] for step in steps),
        "evaluation": abs(evaluated / float(alone) - 1),
        "of": len(material.training),
        "samples": [len(first), len(second)],
        "repeated": len(first) - len(set(first)) + len(second) - len(set(second)),
        "same_order": first == second,
    }


if __name__ == "__main__":
    set_up(read_config(None).parallel)
    if dist.get_rank() == 0:
        generator = torch.Generator().manual_seed(1)
        Path("text").write_bytes(bytes(torch.randint(256, (BYTES,), generator=generator).tolist()))
    dist.barrier()
    for number, words in enumerate(WAYS):
        run(number, words)
    dist.barrier()
    shut_down()
