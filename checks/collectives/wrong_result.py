from ddpdoctor.check import Check
from ddpdoctor.group.collective_results import Wrong, wrong_answers
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Skipped
from ddpdoctor.text import plural, ranks_phrase, size

SHOWN = 8


class WrongResult(Check):
    """A collective gives a wrong answer.

    What it finds:
        An operation of the process group (all_reduce, broadcast, all_gather, reduce_scatter, all_to_all, gather,
        scatter, send/recv, barrier) whose result is not the one that arithmetic gives, for float32, bfloat16 or
        int64, on a small or a large tensor: which operation, which ranks, and the first wrong element. The
        numbers are chosen so that every sum is exact, so a difference is never rounding.

    Why it matters:
        DDP averages gradients with all_reduce and sends weights with broadcast. Where they are wrong, training
        runs on without an error, and the loss is worse, or NaN, or differs between ranks.

    Example:
        GPUs that copy to each other through an IOMMU or PCIe switch that redirects the traffic:
            dist.all_reduce(torch.ones(4, device="cuda"))    # [2., 2., 0., 0.] instead of [2., 2., 2., 2.]
        Or a wrapper around torch.distributed that changes the result:
            torch.distributed.all_reduce = compressed_all_reduce

    Fix:
        On GPUs, leave out the direct path between them and see whether the answer becomes right:
            NCCL_P2P_DISABLE=1 ddpdoctor check
        If it does, turn off ACS in the PCIe switches, or the IOMMU (iommu=pt on the kernel's command line).
        Otherwise look for code that replaces functions of torch.distributed, and reinstall torch.
    """

    code = "DD313"
    name = "collective-wrong-result"
    family = Family.COLLECTIVES
    title = "collectives give the right answers"
    measurements = ("collectives",)

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        wrong = wrong_answers(ranks)
        if wrong:
            return [self._wrong(wrong, ranks.backend)]
        rows = next(iter(ranks.values("collectives").values()))["rows"]
        offered = dict.fromkeys(row["op"] for row in rows if not row.get("unsupported"))
        refused = [row for row in rows if row.get("unsupported")]
        if not offered:
            return Skipped(f"{ranks.backend} offers none of those that are tried")
        return Passed(
            f"{plural(len(offered), 'operation')} of {ranks.backend} {'gives' if len(offered) == 1 else 'give'} the "
            "exact answer for float32, bfloat16 and int64",
            tuple(
                Evidence(f"{ranks.backend} does not offer {row['op']} {row['dtype']}: {row['unsupported']}")
                for row in refused
            ),
        )

    def _wrong(self, wrong: list[Wrong], backend: str) -> Finding:
        first = wrong[0]
        others = len(wrong) - 1
        return self.fail(
            _headline(first) + (f", and {plural(others, 'other case')}" if others else ""),
            why="DDP averages gradients with all_reduce and sends weights with broadcast. Where a collective is "
            "wrong, training goes on without an error and learns from wrong numbers.",
            fix=_fix(backend),
            ranks=tuple(sorted({rank for one in wrong for rank in one.elements})),
            evidence=tuple(evidence for one in wrong[:SHOWN] for evidence in _evidence(one)),
        )


def _headline(wrong: Wrong) -> str:
    where = ranks_phrase(wrong.elements)
    if wrong.op == "barrier":
        return f"barrier let {where} pass before every rank had come"
    index, expected, got = next(iter(wrong.elements.values()))
    return f"{_what(wrong)} gave {where} a wrong answer: element {index} is {got}, not {expected}"


def _what(wrong: Wrong) -> str:
    return f"{wrong.op} of {size(wrong.bytes)} {wrong.dtype}" if wrong.dtype else wrong.op


def _evidence(wrong: Wrong) -> list[Evidence]:
    states: dict[tuple[int, object, object], list[int]] = {}
    for rank, element in wrong.elements.items():
        states.setdefault(element, []).append(rank)
    if wrong.op == "barrier":
        return [
            Evidence(f"barrier ended before rank {state[0]} came", tuple(at)) for state, at in states.items()
        ]
    return [
        Evidence(f"{_what(wrong)}: element {index} is {got}, expected {expected}", tuple(at))
        for (index, expected, got), at in states.items()
    ]


def _fix(backend: str) -> str:
    if backend == "nccl":
        return (
            "NCCL_P2P_DISABLE=1 ddpdoctor check; if that is right, turn off ACS in the PCIe switches, or boot "
            "with iommu=pt"
        )
    return (
        "see whether a package replaces functions of torch.distributed (a sitecustomize, a communication "
        "library), and reinstall torch: pip install --force-reinstall torch"
    )
