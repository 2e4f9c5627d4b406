"""The process from which tests/support/forked.py forks ranks: it has imported torch, and asks for lines on stdin."""

import atexit
import ctypes
import functools
import gc
import hashlib
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import torch._dynamo  # the constructor of DistributedDataParallel imports it, which takes most of a second
import torch.distributed
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ddpdoctor.job.forked_torchrun import load_recorder, run_as_main

_VICTIM_SECONDS, _TERM_SECONDS = 3.0, 5.0
_LONGEST_TURN = 0.1
"""Seconds that a look at the ranks and the pause after it take on a busy machine."""
"""What torchrun gives, in its way: ranks that outlive one that failed, and what ends them."""
_PR_SET_PDEATHSIG = 1


def serve() -> None:
    """Fork the ranks of each script that is asked for."""
    load_recorder()
    gc.freeze()  # or each rank's garbage collector would copy the memory that all share
    for line in sys.stdin:
        request = json.loads(line)
        port = _free_port()
        ranks = {_fork(rank, port, request): rank for rank in range(request["nproc"])}
        print(json.dumps(_wait(ranks, request["seconds"], Path(request["run"], "stop"))), flush=True)


def _free_port() -> int:
    """A free port below the ephemeral range, where no connection takes it before the ranks do."""
    while True:
        port = random.randint(10000, 19999)
        with closing(socket.socket()) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port


def _fork(rank: int, port: int, request: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        leave = os._exit  # the recorder watches the function of this name
        status = 1
        try:
            status = _be_rank(rank, port, request)
        finally:
            leave(status)
    return pid


def _wait(ranks: Mapping[int, int], seconds: float, stop: Path) -> dict[str, Any]:
    """The exit statuses by rank; and whether and when they were stopped: by the time, or a file that asks for it."""
    statuses: dict[int, int] = {}
    deadline, failed, termed = time.monotonic() + seconds, 0.0, 0.0
    timed_out, last = False, time.monotonic()
    while len(statuses) < len(ranks):
        for pid, rank in ranks.items():
            if rank not in statuses and (found := os.waitpid(pid, os.WNOHANG))[0]:
                statuses[rank] = os.waitstatus_to_exitcode(found[1])
        now = time.monotonic()
        # A machine that stands still takes the ranks' time, too.
        stall = max(0.0, now - last - _LONGEST_TURN)
        deadline, failed, termed = deadline + stall, failed and failed + stall, termed and termed + stall
        last = now
        failed = failed or (now if any(statuses.values()) else 0.0)
        timed_out = timed_out or ((now > deadline or stop.exists()) and not failed)
        if timed_out or (failed and now - failed > _VICTIM_SECONDS):
            number = signal.SIGKILL if termed and now - termed > _TERM_SECONDS else signal.SIGTERM
            termed = termed or time.monotonic()
            for pid in (pid for pid, rank in ranks.items() if rank not in statuses):
                _signal(pid, number)
        time.sleep(0.01)
    for pid in ranks:
        _signal(pid, signal.SIGKILL)  # workers that a rank left in its session
    return {
        "statuses": [statuses[rank] for rank in sorted(statuses)],
        "timed_out": timed_out,
        "stopped_at": termed or None,
    }


def _signal(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass


def _be_rank(rank: int, port: int, request: Mapping[str, Any]) -> int:
    """All of a rank's life; its exit status."""
    own = Path(request["run"], "torchrun", "none", "attempt_0", str(rank))
    own.mkdir(parents=True)
    _become_process(own)
    os.chdir(request["work"])
    for name, value in _environ(rank, port, request).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    words = list(request["words"])
    sys.argv[:] = words
    sys.path[0] = str(Path(words[0]).parent)
    random.seed(rank)  # every process of its own has another state, and a fork would not
    hold = _Hold()
    if "DDPDOCTOR_RECORD" in request["environ"]:
        load_recorder().arm()
    status = run_as_main(words[0])
    threading._shutdown()  # type: ignore[attr-defined]
    (own / "final.json").write_text(json.dumps(hold.digests()))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _become_process(own: Path) -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, name in ((1, "stdout.log"), (2, "stderr.log")):
        os.dup2(os.open(own / name, flags, 0o600), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    atexit._clear()


def _environ(rank: int, port: int, request: Mapping[str, Any]) -> dict[str, str | None]:
    """The variables of a rank; None for those that are not to be set."""
    size = str(request["nproc"])
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        **request["environ"],
    }


class _Hold:
    """Holds the modules and optimizers that a script makes, to look at their end."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        for kind in (DistributedDataParallel, Optimizer):
            self._hold(kind)

    def _hold(self, kind: Any) -> None:
        original, made = kind.__init__, self.made

        @functools.wraps(original)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            made.append(self)
            original(self, *args, **kwargs)

        kind.__init__ = init

    def digests(self) -> dict[str, Any]:
        """Of everything that was made, of the random states, and whether a gradient is left."""
        random_states = (random.getstate(), torch.get_rng_state().tolist())
        # A ZeroRedundancyOptimizer has no whole state, and the optimizer inside it was held as well.
        whole = [one for one in self.made if not hasattr(one, "consolidate_state_dict")]
        states = [_digest(one.state_dict()) for one in whole if hasattr(one, "state_dict")]
        return {"states": states, "random": hashlib.sha256(repr(random_states).encode()).hexdigest()}


def _digest(state: Any) -> str:
    digest = hashlib.sha256()
    for part in _parts(state):
        digest.update(part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        local = value.to_local() if hasattr(value, "to_local") else value  # of a DTensor
        flat = local.detach().cpu().contiguous()
        yield f"{flat.dtype} {tuple(flat.shape)}".encode()
        yield ctypes.string_at(flat.data_ptr(), flat.nbytes)
    elif isinstance(value, dict):
        for key in value:
            yield repr(key).encode()
            yield from _parts(value[key])
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _parts(one)
    else:
        yield repr(value).encode()


if __name__ == "__main__":
    serve()
