"""Faults made real in ranks that ddpdoctor starts, without a hook in ddpdoctor: a sitecustomize on PYTHONPATH
that changes a function of torch once its module is imported, as a broken installation would."""

import textwrap
from pathlib import Path

_SITECUSTOMIZE = """
import importlib.abc, importlib.util, os, sys

MODULE = {module!r}

class _Hook(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def exec_module(module):
            load(module)
            _break(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, _Hook())

def is_rank(rank):
    return os.environ.get("RANK") == str(rank)

def _break(module):
{body}
"""

CORRUPTED_ALL_REDUCE = """
    right = module.all_reduce
    def all_reduce(tensor, *args, **kwargs):
        work = right(tensor, *args, **kwargs)
        if is_rank(1):
            tensor.view(-1)[tensor.numel() // 2] += 1
        return work
    module.all_reduce = all_reduce
"""


def _first(does: str, function: str = "all_reduce") -> str:
    """A function of the module that does something before what it is there for."""
    return f"""
    import signal, time
    right = module.{function}
    def {function}(*args, **kwargs):
        {does}
        return right(*args, **kwargs)
    module.{function} = {function}
"""


RAISING_ALL_REDUCE = _first('if is_rank(1): raise ValueError("image 17 is broken")')
KILLED_IN_ALL_REDUCE = _first("if is_rank(1): os.kill(os.getpid(), signal.SIGKILL)")
EXITING_IN_ALL_REDUCE = _first("if is_rank(1): os._exit(7)")
LATE_TO_JOIN = _first("if is_rank(1): time.sleep(8)", "init_process_group")
SPINNING_ALL_REDUCE = _first("while is_rank(1): pass")
STOPPED_IN_ALL_REDUCE = _first("if is_rank(1): os.kill(os.getpid(), signal.SIGSTOP)")
IGNORING_SIGTERM = _first(
    """signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while is_rank(1): time.sleep(1)"""
)
NO_WEIGHT_SYNC = """
    module._sync_module_states = lambda *args, **kwargs: None
"""
C10D = "torch.distributed.distributed_c10d"
UTILS = "torch.distributed.utils"


def break_torch(folder: Path, body: str, module: str = C10D) -> dict[str, str]:
    """Write the fault into a folder; the variables that bring it into every Python started with them."""
    folder.mkdir(parents=True, exist_ok=True)
    body = textwrap.indent(textwrap.dedent(body), "    ")
    (folder / "sitecustomize.py").write_text(_SITECUSTOMIZE.format(module=module, body=body))
    return {"PYTHONPATH": str(folder)}
