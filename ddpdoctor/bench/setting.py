"""What is to be measured, as the command tells its ranks."""

from dataclasses import dataclass, replace

SETTING = "setting.json"
"""The file, in the benchmark's folder, that holds one."""
MEASURED = "ddpdoctor.bench.measure"
"""The measurement of the live group that makes it."""
HEADS = 4
"""Of the model's attention, among which its width is divided."""
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


@dataclass(frozen=True)
class Setting:
    """One benchmark."""

    nproc: int
    """The most ranks."""
    backend: str = "gloo"
    threads: int = 1
    """Of each rank, for what a CPU computes."""
    batch_size: int = 4
    """Samples of a rank, however many there are: weak scaling."""
    context: int = 32
    """Tokens of a sample."""
    width: int = 256
    layers: int = 2
    seconds: float = 3.0
    """That the steps of one row take."""
    sizes: tuple[int, ...] = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
    """Bytes of the collectives, as nccl-tests count them."""
    collective_seconds: float = 0.3
    """That the calls of one operation and size take."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of ranks that are measured: powers of two, and the most."""
        doubled = [1 << power for power in range(self.nproc.bit_length()) if 1 << power <= self.nproc]
        return tuple(dict.fromkeys((*doubled, self.nproc)))


def default_setting(nproc: int, backend: str, *, quick: bool) -> Setting:
    """A benchmark of about half a minute for two CPUs, or one of a few seconds; larger work for GPUs."""
    if backend == "nccl":
        work = {"batch_size": 32, "context": 256, "width": 1024, "layers": 8}
        sizes = (64 << 10, 1 << 20, 16 << 20, 256 << 20)
        fast = Setting(nproc, backend, **work, sizes=sizes)
    else:
        fast = Setting(nproc, backend)
    if not quick:
        return fast
    return replace(fast, seconds=0.6, collective_seconds=0.05, sizes=fast.sizes[1:3])
