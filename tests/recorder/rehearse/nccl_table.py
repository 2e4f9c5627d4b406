# ruff: noqa: E501 - a row is a line
"""What NCCL takes and refuses, call by call, as facts of torch's ProcessGroupNCCL. One rank of a rehearsal; prints the
rows that went otherwise, and `as NCCL` where there is none.

TAKEN: name, what is called with (rank, world size) and answers the result, the expected result.
REFUSED: name, what is called, part of NCCL's message.
"""

import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch._C._distributed_c10d import _make_nccl_premul_sum
from torch.distributed.distributed_c10d import _coalescing_manager

GPU = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
OP = dist.ReduceOp
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
MOVED = (*INTEGERS, *FLOATS, *FLOAT8, torch.bool, torch.complex64)
SUMMED = (*INTEGERS, *FLOATS, *FLOAT8)


def on_gpu(values, dtype=torch.float32):
    return torch.tensor(values, device=GPU).to(dtype)


def empty(*shape, dtype=torch.float32):
    return torch.zeros(*shape, device=GPU, dtype=dtype)


def plain(result):
    """Lists of numbers, whatever the types and devices."""
    if isinstance(result, torch.Tensor):
        wide = result.to(torch.complex64) if result.is_complex() else result.double()
        return [complex(v).real if not result.is_complex() else complex(v) for v in wide.flatten().tolist()]
    return [plain(element) if isinstance(element, torch.Tensor) else element for element in result]


def into(output, collective, *args, **options):
    """Call a collective that writes to its first argument, and answer that."""
    work = collective(output, *args, **options)
    if options.get("async_op"):
        work.wait()
    return output


def lists(n, *shape, dtype=torch.float32):
    return [empty(*shape, dtype=dtype) for _ in range(n)]


def coalesced(collective, pairs, **options):
    with _coalescing_manager(**options) as manager:
        for pair in pairs:
            collective(*pair)
    if options.get("async_ops"):
        manager.wait()
    return [pair[0] for pair in pairs]


def exchanged(r, n, dtype):
    received = empty(2, dtype=dtype)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, on_gpu([r, 1], dtype), (r + 1) % n),
            dist.P2POp(dist.irecv, received, (r - 1) % n),
        ]
    )
    for work in works:
        work.wait()
    return received


def passed_on(r, n, dtype):
    """From rank 0 to rank 1, blocking."""
    given = on_gpu([5, 1], dtype)
    if r == 0:
        dist.send(given, 1)
    elif r == 1:
        dist.recv(given := empty(2, dtype=dtype), 0)
    return given


def objects(r, n):
    gathered = [None] * n
    dist.all_gather_object(gathered, {"rank": r})
    box = [r]
    dist.broadcast_object_list(box, src=1)
    scattered = [None]
    dist.scatter_object_list(scattered, list(range(n)) if r == 0 else None, src=0)
    collected = [None] * n if r == 0 else None
    dist.gather_object(r, collected, dst=0)
    return [[g["rank"] for g in gathered], box[0], scattered[0], collected if r == 0 else None]


def in_pairs(r, n):
    """Subgroups of one backend, and of none that was named."""
    first = dist.new_group([0, 1])
    second = dist.new_group([0, 1], backend="nccl")
    value = on_gpu([r + 1])
    if r < 2:
        dist.all_reduce(value, OP.AVG, group=first)
        dist.all_reduce(value, group=second)
    return value


def in_place_gather(r, n):
    whole = empty(2 * n)
    whole[2 * r : 2 * r + 2] = r + 1
    dist.all_gather_into_tensor(whole, whole[2 * r : 2 * r + 2])
    return whole


def under_autograd(r, n):
    leaf = torch.full((2,), float(r), device=GPU, requires_grad=True)
    gathered = empty(2 * n)
    dist.all_gather_into_tensor(gathered, leaf * 1)
    parts = lists(n, 2)
    dist.all_gather(parts, leaf * 1)
    assert not gathered.requires_grad
    assert not parts[0].requires_grad
    return gathered


def by_future(r, n):
    value = on_gpu([r, 4 * r])
    return dist.all_reduce(value, OP.AVG, async_op=True).get_future().then(lambda f: f.value()[0]).wait()


def polled(r, n):
    value = on_gpu([2 * r], torch.int64)
    work = dist.all_reduce(value, OP.AVG, async_op=True)
    while not work.is_completed():
        pass
    return value


def total(n, start=0):
    return sum(range(start, n + start))


def rows_by_type():
    """The table's rows for each type."""
    for t in MOVED:
        first = [1.0, 1.0] if t is torch.bool else [1.0, 2.0]
        yield (
            f"broadcast {t}",
            lambda r, n, t=t: into(on_gpu([1 + r, 2 + r], t), dist.broadcast, 0),
            lambda r, n, e=first: e,
        )
        yield (
            f"all_gather {t}",
            lambda r, n, t=t: (p := lists(n, 2, dtype=t), dist.all_gather(p, on_gpu([r, 1], t)))[0],
            lambda r, n, t=t: [[float(min(i, 1) if t is torch.bool else i), 1.0] for i in range(n)],
        )
        yield (
            f"all_gather_into_tensor {t}",
            lambda r, n, t=t: into(empty(2 * n, dtype=t), dist.all_gather_into_tensor, on_gpu([r, 1], t)),
            lambda r, n, t=t: [
                v for i in range(n) for v in (float(min(i, 1) if t is torch.bool else i), 1.0)
            ],
        )
        yield (
            f"all_to_all_single {t}",
            lambda r, n, t=t: into(empty(n, dtype=t), dist.all_to_all_single, on_gpu([r] * n, t)),
            lambda r, n, t=t: [float(min(i, 1) if t is torch.bool else i) for i in range(n)],
        )
        yield (
            f"all_to_all {t}",
            lambda r, n, t=t: (o := lists(n, 1, dtype=t), dist.all_to_all(o, [on_gpu([r], t)] * n))[0],
            lambda r, n, t=t: [[float(min(i, 1) if t is torch.bool else i)] for i in range(n)],
        )
        yield (
            f"send and recv {t}",
            lambda r, n, t=t: passed_on(r, n, t),
            lambda r, n, t=t: [1.0 if t is torch.bool else 5.0, 1.0],
        )
        yield (
            f"batch_isend_irecv {t}",
            lambda r, n, t=t: exchanged(r, n, t),
            lambda r, n, t=t: [float(min((r - 1) % n, 1) if t is torch.bool else (r - 1) % n), 1.0],
        )
        yield (
            f"gather {t}",
            lambda r, n, t=t: (
                (o := lists(n, 2, dtype=t) if r == 0 else None, dist.gather(on_gpu([1, 1], t), o))[0] or []
            ),
            lambda r, n: [[1.0, 1.0]] * n if r == 0 else [],
        )
        yield (
            f"scatter {t}",
            lambda r, n, t=t: into(
                empty(2, dtype=t), dist.scatter, [on_gpu([1, i], t) for i in range(n)] if r == 0 else None
            ),
            lambda r, n, t=t: [1.0, float(min(r, 1) if t is torch.bool else r)],
        )
    for t in SUMMED:
        yield (
            f"all_reduce {t}",
            lambda r, n, t=t: into(on_gpu([r, 2], t), dist.all_reduce),
            lambda r, n: [total(n), 2 * n],
        )
        yield (
            f"all_reduce MAX {t}",
            lambda r, n, t=t: into(on_gpu([r, 2], t), dist.all_reduce, OP.MAX),
            lambda r, n: [n - 1, 2],
        )
        yield (
            f"all_reduce AVG {t}",
            lambda r, n, t=t: into(on_gpu([4 * r, 2], t), dist.all_reduce, OP.AVG, async_op=True),
            lambda r, n: [4 * total(n) / n, 2],
        )
        yield (
            f"reduce AVG {t}",
            lambda r, n, t=t: into(on_gpu([4 * r, 2], t), dist.reduce, 0, OP.AVG),
            lambda r, n: [4 * total(n) / n, 2] if r == 0 else [4 * r, 2],
        )
        yield (
            f"reduce_scatter_tensor {t}",
            lambda r, n, t=t: into(empty(1, dtype=t), dist.reduce_scatter_tensor, on_gpu(list(range(n)), t)),
            lambda r, n: [r * n],
        )
        yield (
            f"reduce_scatter_tensor AVG {t}",
            lambda r, n, t=t: into(empty(1, dtype=t), dist.reduce_scatter_tensor, on_gpu([4] * n, t), OP.AVG),
            lambda r, n: [4],
        )
        yield (
            f"reduce_scatter {t}",
            lambda r, n, t=t: into(
                empty(1, dtype=t), dist.reduce_scatter, [on_gpu([i], t) for i in range(n)]
            ),
            lambda r, n: [r * n],
        )
        yield (
            f"functional all_reduce avg {t}",
            lambda r, n, t=t: functional.all_reduce(on_gpu([4 * r], t), "avg", dist.group.WORLD),
            lambda r, n: [4 * total(n) / n],
        )
        yield (
            f"functional all_gather {t}",
            lambda r, n, t=t: functional.all_gather_tensor(on_gpu([r], t), 0, dist.group.WORLD),
            lambda r, n: list(range(n)),
        )
        yield (
            f"functional reduce_scatter avg {t}",
            lambda r, n, t=t: functional.reduce_scatter_tensor(
                on_gpu([4] * n, t), "avg", 0, dist.group.WORLD
            ),
            lambda r, n: [4],
        )
    for t in FLOATS:
        yield (
            f"all_reduce PREMUL_SUM {t}",
            lambda r, n, t=t: into(on_gpu([1.0, 2.0], t), dist.all_reduce, _make_nccl_premul_sum(0.5)),
            lambda r, n: [n / 2, n],
        )
        yield (
            f"reduce_scatter_tensor PREMUL_SUM {t}",
            lambda r, n, t=t: into(
                empty(1, dtype=t), dist.reduce_scatter_tensor, on_gpu([2] * n, t), _make_nccl_premul_sum(0.5)
            ),
            lambda r, n: [n],
        )


TAKEN = [
    *rows_by_type(),
    ("all_reduce of bool is an or", lambda r, n: into(on_gpu([r == 0, True, False], torch.bool), dist.all_reduce), lambda r, n: [1, 1, 0]),
    ("all_reduce of bool, MIN", lambda r, n: into(on_gpu([r == 0, True], torch.bool), dist.all_reduce, OP.MIN), lambda r, n: [0, 1]),
    ("AVG of integers towards zero", lambda r, n: into(on_gpu([r, -r]).long(), dist.all_reduce, OP.AVG), lambda r, n: [total(n) // n, -(total(n) // n)]),
    ("all_reduce of a scalar", lambda r, n: into(on_gpu(1.0), dist.all_reduce, OP.AVG), lambda r, n: [1]),
    ("all_reduce PRODUCT", lambda r, n: into(on_gpu([2.0]), dist.all_reduce, OP.PRODUCT), lambda r, n: [2**n]),
    ("all_reduce channels last", lambda r, n: into(torch.ones(1, 2, 2, 2, device=GPU).to(memory_format=torch.channels_last), dist.all_reduce), lambda r, n: [n] * 8),
    ("all_reduce of nothing", lambda r, n: into(empty(0), dist.all_reduce), lambda r, n: []),
    ("all_reduce of a view", lambda r, n: into(empty(3, 2)[1:], dist.all_reduce), lambda r, n: [0] * 4),
    ("all_reduce of complex", lambda r, n: into(torch.full((1,), 1 + 2j, device=GPU), dist.all_reduce, OP.AVG), lambda r, n: [1 + 2j]),
    ("flat output of all_gather_into_tensor", lambda r, n: into(empty(4 * n), dist.all_gather_into_tensor, torch.full((2, 2), float(r), device=GPU)), lambda r, n: [i for i in range(n) for _ in range(4)]),
    ("stacked output of all_gather_into_tensor", lambda r, n: into(empty(n, 2, 2), dist.all_gather_into_tensor, torch.full((2, 2), float(r), device=GPU)), lambda r, n: [i for i in range(n) for _ in range(4)]),
    ("scalars into one tensor", lambda r, n: into(empty(n), dist.all_gather_into_tensor, on_gpu(float(r))), lambda r, n: list(range(n))),
    ("_all_gather_base", lambda r, n: into(empty(2 * n), dist._all_gather_base, on_gpu([r, r])), lambda r, n: [i for i in range(n) for _ in range(2)]),
    ("all_gather_into_tensor in place", in_place_gather, lambda r, n: [i + 1 for i in range(n) for _ in range(2)]),
    ("all_gather_into_tensor async", lambda r, n: into(empty(n), dist.all_gather_into_tensor, on_gpu([r]), async_op=True), lambda r, n: list(range(n))),
    ("gathers under autograd", under_autograd, lambda r, n: [i for i in range(n) for _ in range(2)]),
    ("flat input of reduce_scatter_tensor", lambda r, n: into(empty(2, 2), dist.reduce_scatter_tensor, torch.ones(4 * n, device=GPU)), lambda r, n: [n] * 4),
    ("stacked input of reduce_scatter_tensor", lambda r, n: into(empty(2, 2), dist.reduce_scatter_tensor, torch.ones(n, 2, 2, device=GPU)), lambda r, n: [n] * 4),
    ("_reduce_scatter_base", lambda r, n: into(empty(2), dist._reduce_scatter_base, torch.ones(2 * n, device=GPU)), lambda r, n: [n] * 2),
    ("uneven all_gather", lambda r, n: (o := [empty(i + 1) for i in range(n)], dist.all_gather(o, torch.full((r + 1,), float(r), device=GPU)))[0], lambda r, n: [[i] * (i + 1) for i in range(n)]),
    ("uneven all_gather async", lambda r, n: (o := [empty(i + 1) for i in range(n)], dist.all_gather(o, torch.full((r + 1,), float(r), device=GPU), async_op=True).wait())[0], lambda r, n: [[i] * (i + 1) for i in range(n)]),
    ("all_gather into other shapes", lambda r, n: (o := lists(n, 4), dist.all_gather(o, torch.full((2, 2), float(r), device=GPU)))[0], lambda r, n: [[i] * 4 for i in range(n)]),
    ("all_gather into columns", lambda r, n: (w := empty(2, n), dist.all_gather(list(w.unbind(1)), on_gpu([r, r])))[0], lambda r, n: [*range(n), *range(n)]),
    ("uneven reduce_scatter", lambda r, n: into(empty(r + 1), dist.reduce_scatter, [torch.full((i + 1,), float(i), device=GPU) for i in range(n)]), lambda r, n: [r * n] * (r + 1)),
    ("uneven reduce_scatter AVG", lambda r, n: into(empty(r + 1), dist.reduce_scatter, [torch.full((i + 1,), float(i), device=GPU) for i in range(n)], OP.AVG), lambda r, n: [r] * (r + 1)),
    ("uneven all_to_all", lambda r, n: (o := [empty(i + 1) for i in range(n)], dist.all_to_all(o, [torch.full((r + 1,), float(r), device=GPU)] * n))[0], lambda r, n: [[i] * (i + 1) for i in range(n)]),
    ("uneven all_to_all_single", lambda r, n: into(empty(n * (n + 1) // 2), dist.all_to_all_single, torch.full((n * (r + 1),), float(r), device=GPU), [i + 1 for i in range(n)], [r + 1] * n), lambda r, n: [i for i in range(n) for _ in range(i + 1)]),
    ("coalesced all_reduce", lambda r, n: coalesced(dist.all_reduce, [(on_gpu([r]),), (on_gpu([1, 1]),)]), lambda r, n: [[total(n)], [n, n]]),
    ("coalesced all_gather_into_tensor", lambda r, n: coalesced(dist.all_gather_into_tensor, [(empty(n), on_gpu([r])), (empty(n), on_gpu([1]))]), lambda r, n: [list(range(n)), [1] * n]),
    ("coalesced reduce_scatter_tensor", lambda r, n: coalesced(dist.reduce_scatter_tensor, [(empty(1), torch.ones(n, device=GPU)), (empty(2), torch.ones(2 * n, device=GPU))]), lambda r, n: [[n], [n, n]]),
    ("coalesced on a device, async", lambda r, n: coalesced(dist.all_reduce, [(on_gpu([r]),), (on_gpu([1, 1]),)], device=GPU, async_ops=True), lambda r, n: [[total(n)], [n, n]]),
    ("coalesced broadcasts", lambda r, n: coalesced(dist.broadcast, [(on_gpu([r + 1]), 0), (on_gpu([r]), 1)], device=GPU, async_ops=True), lambda r, n: [[1], [1]]),
    ("all_reduce_coalesced", lambda r, n: (o := [on_gpu([r]), on_gpu([1, 1])], dist.all_reduce_coalesced(o))[0], lambda r, n: [[total(n)], [n, n]]),
    ("a future", by_future, lambda r, n: [total(n) / n, 4 * total(n) / n]),
    ("polling", polled, lambda r, n: [2 * total(n) // n]),
    ("objects", objects, lambda r, n: [list(range(n)), 1, r, list(range(n)) if r == 0 else None]),
    ("subgroups", in_pairs, lambda r, n: [3] if r < 2 else [r + 1]),
    ("barrier", lambda r, n: [dist.barrier(device_ids=[GPU.index]), dist.barrier(), dist.barrier(async_op=True).wait() and None], lambda r, n: [None] * 3),
    ("functional all_reduce of bool", lambda r, n: functional.all_reduce(on_gpu([True, False], torch.bool), "sum", dist.group.WORLD), lambda r, n: [1, 0]),
    ("functional all_gather of columns", lambda r, n: functional.all_gather_tensor(torch.full((2, 1), float(r), device=GPU), 1, dist.group.WORLD), lambda r, n: [*range(n), *range(n)]),
    ("functional all_to_all", lambda r, n: functional.all_to_all_single(on_gpu([r] * n), None, None, dist.group.WORLD), lambda r, n: list(range(n))),
    ("functional broadcast", lambda r, n: functional.broadcast(on_gpu([r + 1]), 0, dist.group.WORLD), lambda r, n: [1]),
    ("functional coalesced", lambda r, n: functional.all_reduce_coalesced([on_gpu([1]), on_gpu([r])], "sum", dist.group.WORLD), lambda r, n: [[n], [total(n)]]),
]  # fmt: skip

REFUSED = [
    ("a tensor on the CPU", lambda r, n: dist.all_reduce(torch.ones(2)), "No backend type associated with device type cpu"),
    ("a tensor moved to the CPU", lambda r, n: dist.broadcast(on_gpu([1]).cpu(), 0), "No backend type associated with device type cpu"),
    ("a model on the CPU", lambda r, n: torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2)), "No backend type associated with device type cpu"),
    ("int16", lambda r, n: dist.all_reduce(on_gpu([1], torch.int16)), "Input tensor data type is not supported for NCCL process group"),
    ("a transposed tensor", lambda r, n: dist.all_reduce(torch.ones(2, 3, device=GPU).t()), "Tensors must be contiguous"),
    ("a strided tensor between two ranks", lambda r, n: dist.send(torch.ones(4, device=GPU)[::2], (r + 1) % n), "Tensors for P2P must be non-overlapping and dense"),
    ("bits", lambda r, n: dist.all_reduce(on_gpu([1], torch.int64), OP.BAND), "Cannot use ReduceOp.BAND with NCCL"),
    ("AVG of bool", lambda r, n: dist.all_reduce(on_gpu([True], torch.bool), OP.AVG), "Cannot use ReduceOp.AVG with boolean inputs"),
    ("PREMUL_SUM of integers", lambda r, n: dist.all_reduce(on_gpu([1], torch.int64), _make_nccl_premul_sum(2.0)), "PreMulSum Data type must be half, float, bfloat16 or double"),
    ("a recv from anybody", lambda r, n: dist.recv(empty(1)), "ProcessGroupNCCL does not support recvAnysource"),
    ("an output that is too small", lambda r, n: dist.all_gather_into_tensor(empty(1), on_gpu([1, 2])), "output tensor size must be equal to world_size times input tensor size"),
    ("an input that is too small", lambda r, n: dist.reduce_scatter_tensor(empty(2), empty(2)), "input tensor size must be equal to world_size times output tensor size"),
    ("monitored_barrier", lambda r, n: dist.monitored_barrier(), "monitored_barrier "),
]  # fmt: skip


def differences(rank, world):
    """The rows that went otherwise."""
    for name, call, expected in TAKEN:
        try:
            result = plain(call(rank, world))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            yield f"{name}: {type(error).__name__}: {error}"
        else:
            if result != expected(rank, world):
                yield f"{name}: {result}, expected {expected(rank, world)}"
    for name, call, message in REFUSED:
        try:
            call(rank, world)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            if message not in str(error):
                yield f"{name}: refused by {type(error).__name__}: {error}"
        else:
            yield f"{name}: taken"


torch.cuda.set_device(GPU)
dist.init_process_group("nccl")
found = list(differences(dist.get_rank(), dist.get_world_size()))
for on_the_cpu in (dist.new_group(backend="gloo"), dist.new_group(backend="cpu:gloo,cuda:nccl")):
    dist.all_reduce(ones := torch.ones(2), group=on_the_cpu)
    if ones.tolist() != [dist.get_world_size()] * 2:
        found.append(f"tensors on the CPU: {ones}")
print("\n".join(found) or "as NCCL")
dist.destroy_process_group()
