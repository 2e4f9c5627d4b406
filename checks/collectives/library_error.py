import re
from collections.abc import Iterator
from typing import Any

from ddpdoctor.check import Check, Confidence, Finding, Judgement, Role, Source
from ddpdoctor.failures import Message, Says, pattern, says
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Line, Log, Raised, log_fields
from ddpdoctor.logs.secondary_errors import is_of_a_library, speaks_of_a_peer
from ddpdoctor.text import quote, ranks_phrase, shorten

_VISIBLE = (
    "nvidia-smi topo -m     # in the container of each rank: the same GPUs in all of one host\n"
    "one container for all ranks of a host, with /sys as it is: docker run --gpus all --ipc=host ..."
)
_TRACE = (
    "CUDA_LAUNCH_BLOCKING=1 NCCL_DEBUG=INFO torchrun ...\nnvidia-smi -q; dmesg -T | grep -i -e nvrm -e xid"
)
_KNOWN = (
    Message(
        r"Could not find real path of|nvmlDeviceGetHandleBy\w+\(\) failed|GetXmlFrom\w+ ?:|No NUMA"
        r"|Could not find .{0,40}path from gpu|could not find DEV for GPU",
        why="NCCL reads from /sys and NVML which GPUs and network adapters a host has. What it found there does not "
        "fit the GPUs of the ranks, as in a container or virtual machine that shows only some of them.",
        fix=_VISIBLE,
    ),
    Message(
        r"socketFinalizeAccept: wrong type (?:3 != 4|4 != 3)",
        why="One host uses sockets for data (type 3), and the other one InfiniBand or RoCE (type 4).",
        fix="NCCL_DEBUG=INFO torchrun ...     # 'Using network' has to be the same on every host\n"
        "NCCL_IB_DISABLE, NCCL_NET and NCCL_IB_HCA have to be as well",
    ),
    Message(
        r"No transport found for rank",
        why="NCCL found no path between two ranks: peer access, shared memory and network are "
        "all switched off, or none of them works between these two.",
        fix="env | grep -E 'NCCL_(P2P|SHM|NET|IB)'     # the variables with DISABLE switch paths off\n"
        + _VISIBLE,
    ),
    Message(
        r"P2P is disabled between NVLINK connected GPUs",
        why="NVLink connects these GPUs, and the driver offers no peer access over it: a link that failed, or a "
        "virtual machine or container that separates the GPUs.",
        fix="nvidia-smi nvlink --status; nvidia-smi topo -p2p r\nNCCL_IGNORE_DISABLED_P2P=1 "
        "continues without it",
    ),
    Message(
        r"Unknown command \d+ from localRank|\[Rem Allocator\] Allocation failed"
        r"|invalid (?:magic|connection)|wrong magic",
        why="A connection to one of NCCL's ports brought bytes that are not NCCL's. Something else connected to it, "
        "such as a port scanner, or another job that was given the same address.",
        fix="NCCL_SOCKET_IFNAME=<an interface of the cluster only>; exclude the nodes from the security scanner",
    ),
    Message(
        r"NCCL WARN (?:NET/OFI|OFI )|libfabric:.{0,80}<(?:warn|error)>",
        why="The plugin for EFA and other fabrics of libfabric (aws-ofi-nccl) could not use its network.",
        fix="fi_info -p efa     # has to list the adapters, inside the container too\n"
        "plugin, libfabric and NCCL of versions that belong together; the security group lets EFA through to itself",
    ),
    Message(
        r"Call to ibv_create_[cq][qp] failed$",
        why="The InfiniBand adapter gave no queue to one more connection, and this version of NCCL does not say why: "
        "mostly the limit on locked memory, or the adapter's number of queues.",
        fix="ulimit -l     # inside the job; it has to say unlimited\ndmesg -T | grep -i mlx5",
    ),
    Message(
        r"[Gg]loo connectFullMesh failed with \[[^\]]{1,200}\] (?:no error|Success)(?!: connect \[127\.)",
        why="gloo's ranks gave each other addresses that cannot be reached, or one of them had "
        "ended. Without GLOO_SOCKET_IFNAME gloo takes the address of the host's name.",
        fix="getent hosts $(hostname)     # on every node: no 127.0.1.1\n"
        "export GLOO_SOCKET_IFNAME=eth0     # the interface that leads to the other nodes: ip -br address",
    ),
    Message(
        r"allocated on device \d+ mismatch|is not a valid pointer|argument is NULL",
        why="A tensor that was given to NCCL lies on another GPU than that of its rank, or not on a GPU.",
        fix="torch.cuda.set_device(local_rank) before anything else, and every tensor on that device",
    ),
    Message(
        r"invalid root \d+|Invalid rank requested|[Rr]ank \d+ is out of range",
        why="A rank or root that is outside of the group.",
        fix="ranks of a group count from 0: dist.get_world_size(group), dist.get_group_rank(group, rank)",
    ),
    Message(
        r"corrupted comm object|Attempt to use communicator before|communicator was revoked|is in abort state",
        why="A communicator was used after it had failed or had been destroyed, or by two threads at once.",
        fix="no collective after destroy_process_group, and none from a second thread (a DataLoader's, a logger's)",
    ),
    Message(
        r"Thread creation failed|pthread_create failed|can't start new thread",
        why="The process was not allowed one more thread.",
        fix="ulimit -u; cat /sys/fs/cgroup/pids.max     # in the container of the ranks",
    ),
    Message(
        r"CUDA-capable device(?:s are|\(s\) is/are) busy or unavailable",
        why="The GPU is in exclusive mode, and another process has it: a rank with the same GPU, or an earlier run.",
        fix="nvidia-smi -q -d COMPUTE     # Default is the mode that lets several processes in\n"
        "torch.cuda.set_device(local_rank) before anything else; end processes of earlier runs",
    ),
    Message(
        r"no kernel image is available for execution|HIP error: invalid device function",
        why="This build of torch, or of an extension, has no code for this GPU.",
        fix="python -c 'import torch; print(torch.cuda.get_arch_list(), torch.cuda.get_device_properties(0))'\n"
        "install a build that lists the GPU's architecture; for AMD, HSA_OVERRIDE_GFX_VERSION may help",
    ),
    Message(
        r"CU(?:BLAS|DNN|SOLVER)_STATUS_(?:NOT_INITIALIZED|INTERNAL_ERROR|EXECUTION_FAILED)",
        why="A library of CUDA could not start or run: mostly the GPU's memory is full, or an earlier kernel failed "
        "(an index outside of its range).",
        fix="nvidia-smi     # is the memory full?\nCUDA_LAUNCH_BLOCKING=1 torchrun ...     # the call that failed "
        "first",
    ),
)
"""By the regular expression of the message. What another check knows stands there."""
_BY_KIND = (
    Message(
        r"ncclUnhandledCudaError|unhandled cuda error|[Cc]uda failure|HIP failure|(?:CUDA|HIP) error",
        why="A call of CUDA failed, mostly because of the GPU, its driver, or an earlier kernel.",
        fix=_TRACE,
    ),
    Message(
        r"ncclSystemError|unhandled system error",
        why="A call of the operating system failed inside of NCCL: a connection, shared memory, a file.",
        fix="NCCL_DEBUG=WARN torchrun ...     # the line with NCCL WARN names the call",
    ),
    Message(
        r"ncclInvalidUsage|invalid usage",
        why="NCCL was used in a way that it does not support: two ranks on one GPU, a GPU twice, ranks that disagree.",
        fix="NCCL_DEBUG=WARN torchrun ...     # the line with NCCL WARN says what",
    ),
    Message(
        r"ncclInvalidArgument|invalid argument",
        why="NCCL was given an argument that it does not take.",
        fix="NCCL_DEBUG=WARN torchrun ...     # the line with NCCL WARN says which",
    ),
    Message(
        r"ncclInternalError|internal error",
        why="NCCL met a state that it does not expect. Mostly another rank had failed, or ranks run different "
        "versions.",
        fix="NCCL_DEBUG=WARN torchrun ...     # on every rank; the first line with NCCL WARN says more",
    ),
    Message(
        r"[Gg]loo|pair\.cc|tcp/",
        why="gloo could not connect the ranks, or lost the connection.",
        fix="ip -br address     # the interface that leads to the other nodes\nexport GLOO_SOCKET_IFNAME=eth0",
    ),
)
"""What little is known of other messages, by their kind."""
_FALLBACK = Message(
    "",
    why="ddpdoctor does not know this message.",
    fix="NCCL_DEBUG=INFO TORCH_CPP_LOG_LEVEL=INFO torchrun --log-dir logs --tee 3 ...\nddpdoctor explain logs",
)
_UNTOLD = pattern(Says.AFTERMATH, Says.PEER_GONE)
_WARNING = rf"CCL WARN (?!.{{0,160}}(?:{_UNTOLD}|{pattern(Says.HARMLESS)}))\S"
_LOGGED = rf"\[[EF][^\]]{{0,30}}\.[ch]pp:\d+\] (?!.{{0,160}}(?:{_UNTOLD}))\S"
"""As the C++ part of torch logs errors."""
_LONGEST = 160


class LibraryError(Check):
    """NCCL, gloo or CUDA report an error that no other check knows.

    What it finds:
        A line of `NCCL WARN`, an error that torch's C++ part logs, or an exception of NCCL, gloo or CUDA, which no
        other check explains. What the message means, as far as it is known.

    Why it matters:
        The exception of the script names a collective that is not to blame. The line of the library, often of
        another rank and some lines above, says what happened.

    Example:
        graph/xml.cc:332 NCCL WARN Could not find real path of /sys/class/pci_bus/0000:1e/../../0000:1e:00.0

    Fix:
        What the finding says. If it says no more than the message, look for the message in NCCL's issues, with:
            NCCL_DEBUG=INFO torchrun --log-dir logs --tee 3 train.py
    """

    code = "DD314"
    title = "NCCL, gloo and CUDA report no error"
    names_no_cause_in = (Source.LOG,)
    log_words = (
        "NCCL WARN",
        "RCCL WARN",
        ".cpp:",
        ".hpp:",
        "NCCL error",
        "NCCL Error",
        "CUDA error",
        "HIP error",
    )

    def examine_log(self, log: Log) -> Judgement:
        if found := log.message(_KNOWN):
            known, reason = found
            return self._reported(reason.match.string, known.why, known.fix, log_fields(reason))
        for source, text in _unexplained(log):
            kind = next((message for message in _BY_KIND if re.search(message.pattern, text)), _FALLBACK)
            meaning = f"{kind.why} It is the first such error; later errors may follow from it."
            return self._reported(text, meaning, kind.fix, log_fields(source, role=Role.LIBRARY))
        warning = log.first("CCL WARN")
        if warning is None or log.training or log.failed:
            return NOT_IN_OUTPUT
        harmless = says(warning.text, Says.HARMLESS)
        return self.info(
            f"{_library(warning.text)} warned: {quote(_text_of(warning.text))}",
            why="Successful jobs print this line, too: NCCL falls back."
            if harmless
            else "It is a consequence of an earlier failure, in a part of the output that is not here.",
            fix="keep the output of every rank from its beginning: torchrun --log-dir logs --tee 3 ...",
            **log_fields(warning, role=Role.UNKNOWN),
        )

    def _reported(self, text: str, meaning: str, fix: str, details: dict[str, Any]) -> Finding:
        where = f" on {ranks_phrase(details['ranks'])}" if details["ranks"] else ""
        return self.fail(
            f"{_library(text)} reported{where}: {quote(_text_of(text))}",
            why=meaning,
            fix=fix,
            confidence=Confidence.LIKELY,
            **details,
        )


def _unexplained(log: Log) -> Iterator[tuple[Line | Raised, str]]:
    """The lines, then the exceptions, in which a library tells of an error of its own; what it says."""
    waited = min((wait.line.position for wait in log.waits), default=None)
    for line in log.find(_WARNING, _LOGGED):
        if not log.went_on_after(line) and (waited is None or line.position < waited):
            yield line, line.text
    for raised in log.fatal:
        if is_of_a_library(raised) and not speaks_of_a_peer(raised):
            yield raised, raised.text


def _library(text: str) -> str:
    if match := re.search(r"\b[A-Za-z]{0,3}CCL\b", text):
        return match[0]
    if "nccl" in text:
        return "NCCL"
    if "gloo" in text.lower():
        return "gloo"
    return next((name for name in ("CUDA", "HIP") if name in text), "torch.distributed")


def _text_of(text: str) -> str:
    """The message without the place in the library's source."""
    lines = [line for line in text.splitlines() if line.strip()]
    if "Last error:" in lines and lines[-1] != "Last error:":
        lines = lines[lines.index("Last error:") + 1 :]
    match = re.search(r"(?:CCL WARN|^\S{0,20}\[[^\]]{0,200}\.(?:cpp|hpp|cc):\d+\]) (.*)", lines[0])
    return shorten((match[1] if match else lines[0]).strip(), _LONGEST)
