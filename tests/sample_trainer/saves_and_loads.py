"""What ranks see when they save and load: one answer for each case, printed as JSON. Run by test_checkpoints.py."""

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "sample_trainer"))

import torch
import torch.distributed as dist
from checkpoints import Checkpoints
from config import TrainerError
from progress import Progress
from states import checksum
from torch import nn

NEWEST = "step-00000002.pt"


class Training:
    """A model that has been trained for two steps, the same on every rank."""

    def __init__(self, width: int = 4) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        for _ in range(2):
            self.model(torch.randn(5, 3)).square().sum().backward()
            self.optimizer.step()
            self.scheduler.step()
        # As DDP leaves them between forwards.
        self.model[1].running_mean.add_(dist.get_rank())
        self.progress = Progress(step=2, epoch=1, batches=2, samples=20)

    def checkpoints(self, folder: Path, **more: Any) -> Checkpoints:
        replicated = {"optimizer": self.optimizer, "scheduler": self.scheduler, **more}
        return Checkpoints(folder, self.model, replicated, self.progress)

    def resume(self, folder: Path) -> int | None:
        checkpoints = self.checkpoints(folder)
        newest = checkpoints.newest()
        return None if newest is None else checkpoints.load(newest)

    def states(self) -> list[str]:
        return [
            checksum(one.state_dict()) for one in (self.model, self.optimizer, self.scheduler, self.progress)
        ]


def refused(act: Callable[[], object]) -> str:
    """What it says on this rank, or that it said nothing."""
    try:
        act()
    except TrainerError as error:
        return str(error)
    return "went on"


def on_rank_0(act: Callable[[], object]) -> None:
    if dist.get_rank() == 0:
        act()
    dist.barrier()


def save_and_resume(folder: Path) -> dict[str, Any]:
    """Everything is as it was, on every rank."""
    one = Training()
    one.checkpoints(folder).save(2)
    saved = one.states()
    other = Training()
    with torch.no_grad():
        other.model[0].weight.zero_()
    other.progress.step = 0
    step = other.resume(folder)
    averages = float(other.model[1].running_mean[0]) - float(one.model[1].running_mean[0])
    return {
        "step": step,
        # The buffers are rank 0's.
        "equal": [a == b for a, b in zip(saved, other.states(), strict=True)][dist.get_rank() > 0 :],
        "averages": round(averages),
    }


def differ(folder: Path, change: Callable[[Training], object]) -> str:
    """A save where rank 1 has something else."""
    one = Training()
    if dist.get_rank() == 1:
        with torch.no_grad():
            change(one)
    return refused(lambda: one.checkpoints(folder).save(3))


class Evil:
    """Runs when it is unpickled by the plain unpickler."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("evil-was-here"),)


def forge(checkpoint: Path, **parts: Any) -> None:
    """A checkpoint from elsewhere, in which some parts are others."""
    torch.save({**torch.load(checkpoint, weights_only=True), **parts}, checkpoint)


def damaged(good: Path, folder: Path, damage: Callable[[Path], object]) -> str:
    """Loading a copy to which something was done."""
    on_rank_0(lambda: (shutil.copytree(good, folder), damage(folder / NEWEST)))
    return refused(lambda: Training().resume(folder))


def cases(place: Path) -> dict[str, Any]:
    good = place / "good"
    answers: dict[str, Any] = {
        "resumed": save_and_resume(good),
    }
    answers["model differs"] = differ(good, lambda one: one.model[0].weight[0, 0].add_(1e-7))
    answers["optimizer differs"] = differ(
        good, lambda one: one.optimizer.state_dict()["state"][1]["exp_avg"].neg_()
    )
    answers["after differences"] = sorted(path.name for path in good.iterdir())
    on_rank_0(lambda: (place / "a file").write_text(""))
    answers["later"] = refused(lambda: Training().checkpoints(good).begin(1))
    answers["no folder"] = refused(lambda: Training().checkpoints(place / "a file").begin(1))
    answers["unwritable"] = refused(lambda: Training().checkpoints(place / "a file").save(4))
    answers["nothing there"] = Training().resume(place / "nothing")
    answers["missing"] = refused(lambda: Training().checkpoints(good).load(place / "nothing"))
    answers["other model"] = refused(lambda: Training(width=5).resume(good))
    more = Training().checkpoints(good, scaler=Progress())
    answers["lacks"] = refused(lambda: more.load(good / NEWEST))
    answers["no checkpoint"] = damaged(good, place / "bad1", lambda one: torch.save([1], one))
    answers["corrupt"] = damaged(good, place / "bad2", lambda one: one.write_bytes(b""))
    answers["forged"] = damaged(good, place / "bad3", lambda one: forge(one, model={"a": Evil()}))
    answers["model is none"] = damaged(good, place / "bad5", lambda one: forge(one, model=3))
    return answers


def main() -> None:
    dist.init_process_group("gloo")
    place = Path(sys.argv[1])
    if len(sys.argv) > 2:  # another number of ranks goes on from what is there
        one = Training()
        answers: dict[str, Any] = {"step": one.resume(place / "good")}
        answers["progress"] = one.progress.state_dict()
    else:
        answers = cases(place)
    print(json.dumps(answers))
    dist.barrier()
    time.sleep(0.2)  # as the trainer does, for gloo
    dist.destroy_process_group()


main()
