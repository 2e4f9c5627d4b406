"""The torchrun command, with ranks that are forked from it instead of started anew.

A rank then costs a fork and not an import of torch. The rest is torchrun's own: its options, the variables of the
ranks, their output and error files, and how it ends. A rank sees what it would see in a process of its own.
For scripts that are known to allow it; a user's own may set a variable before it imports torch.
"""

import atexit
import importlib.util
import io
import os
import random
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ddpdoctor.job.forks import preload, wait_for_forks
from ddpdoctor.job.torchrun import OUT

_LOOK_SECONDS = 0.01


def main(variables: dict[str, str], gate: str) -> None:
    """Be torchrun, with the options of ``sys.argv``; ranks wait for the file ``gate``. Only ranks get the variables:
    with those of the recorder torchrun would be recorded, too, and its ranks would look like its workers."""
    tempfile.tempdir = str(Path(gate).parent)  # torch leaves pytorch-errorfile-*.pickle of ranks that fail
    preload(["torch.distributed.run", "torch._dynamo"])  # DistributedDataParallel's constructor needs dynamo
    run: Any = sys.modules["torch.distributed.run"]
    load_recorder()
    begin = run.elastic_launch

    def launch(config: Any, entrypoint: str) -> Callable[..., Any]:
        config.start_method = "fork"
        forked = begin(config, entrypoint=_be_rank)
        return lambda _unbuffered, *words: forked(variables, gate, *words)

    run.elastic_launch = launch
    status = exit_status(run.main)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    # Tearing down an interpreter that has torch in it takes most of a second and has nothing left to do.
    os._exit(status)


def _be_rank(variables: dict[str, str], gate: str, script: str, *arguments: str) -> None:
    """A rank's whole life, as that of ``python -u SCRIPT ARGUMENTS``."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # torchrun's handlers were inherited by the fork
    signal.signal(signal.SIGINT, signal.default_int_handler)
    attempt = Path(os.environ["TORCHELASTIC_ERROR_FILE"]).parents[1]
    wait_for_forks([attempt / str(rank) / OUT for rank in range(int(os.environ["LOCAL_WORLD_SIZE"]))])
    while not Path(gate).exists():
        time.sleep(_LOOK_SECONDS)
    os.environ.update(variables)
    sys.argv[:] = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    _draw_anew()
    atexit._clear()
    load_recorder().arm()
    status = run_as_main(script)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if status:
        sys.exit(status)


def _draw_anew() -> None:
    """Every process of its own has random numbers of its own, and a fork would not."""
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


@cache
def load_recorder() -> Any:
    """The recorder under the name that ``inject`` gives it, imported once for all forks, each of which arms its own."""
    folder = Path(__file__).parents[1] / "recorder"
    spec = importlib.util.spec_from_file_location(
        "_ddpdoctor_recorder", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.load()
    return module


def run_as_main(script: str) -> int:
    """Run a script as the main module, and end it as the interpreter would; its exit status."""
    main = types.ModuleType("__main__")
    main.__file__ = script
    sys.modules["__main__"] = main
    return exit_status(
        lambda: exec(compile(Path(script).read_bytes(), script, "exec", dont_inherit=True), vars(main))
    )


def exit_status(program: Callable[[], object]) -> int:
    """Run a program, and tell of its exception as the interpreter would; its exit status."""
    try:
        program()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return int(end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0
