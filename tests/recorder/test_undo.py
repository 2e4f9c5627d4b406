"""Every patch of data, checkpoints and files can be taken back."""

import json

import pytest

from tests.recorder.test_injection import run, write

pytestmark = pytest.mark.slow

SCRIPT = """
import builtins, json, logging, sys, torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, Subset, TensorDataset
from torch.utils.data import dataloader, random_split

def owners():
    iterator = dataloader._BaseDataLoaderIter
    yield from ((DataLoader, "__init__"), (iterator, "__init__"), (iterator, "_reset"), (iterator, "_next_index"))
    yield from ((iterator, "__next__"), (DistributedSampler, "__init__"), (Subset, "__init__"))
    yield from ((torch.utils.data, "random_split"), (torch.utils.data.dataset, "random_split"))
    yield from ((dataloader._DatasetKind, "create_fetcher"), (torch, "save"), (torch.serialization, "save"))
    yield from ((torch, "load"), (torch.nn.Module, "load_state_dict"), (torch.optim.Optimizer, "load_state_dict"))
    yield from ((torch.amp.GradScaler, "load_state_dict"), (builtins, "print"), (logging.Logger, "handle"))
    yield from ((logging.FileHandler, "__init__"), (torch.optim.lr_scheduler.LambdaLR, "load_state_dict"))

def patched():
    marked = (one for one in owners() if hasattr(getattr(*one), "__ddpdoctor__"))
    return sorted(f"{owner.__name__}.{name}" for owner, name in marked)

before = patched()
session = sys.modules["_ddpdoctor_recorder"].start()
session.undo()
open(sys.argv[0] + ".written after", "w").close()
list(DataLoader(TensorDataset(torch.arange(3)), batch_size=2))
print(json.dumps([before, patched(), sum(1 for _ in owners())]))
"""


def test_undo_leaves_torch_as_it_was(tmp_path):
    result = run(write(tmp_path, SCRIPT), tmp_path / "record")
    assert result.returncode == 0, result.stderr
    before, after, known = json.loads(result.stdout)
    assert (len(before), after) == (known, [])
    events = "".join(file.read_text() for file in (tmp_path / "record").glob("*.jsonl"))
    assert '"loader.made"' not in events
    assert "written after" not in events
