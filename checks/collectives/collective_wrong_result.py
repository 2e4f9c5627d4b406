from ddpdoctor.check import Check, Evidence, Judgement, Passed
from ddpdoctor.group.group_record import GroupRecord, Wrong
from ddpdoctor.text import by_state, plural, ranks_phrase, size

_MOST_CASES = 8
"""Wrong answers that the evidence lists."""


class CollectiveWrongResult(Check):
    """A collective computes a wrong result.

    What it finds:
        An operation of the process group (all_reduce, broadcast, all_gather, reduce_scatter, all_to_all, gather,
        scatter, send/recv, barrier) whose result is wrong, for float32, bfloat16 or int64, on a small or a large
        tensor: which operation, which ranks, and the first wrong element. Every sum is exact by choice of the
        numbers, so a difference is never rounding.

    Why it matters:
        DDP averages gradients with all_reduce and synchronizes weights with broadcast. Where they are wrong, training
        continues without an error, and the loss is worse, or NaN, or differs between ranks.

    Example:
        GPUs whose peer-to-peer traffic an IOMMU or PCIe switch redirects:
            dist.all_reduce(torch.ones(4, device="cuda"))    # [2., 2., 0., 0.] instead of [2., 2., 2., 2.]
        Or a wrapper around torch.distributed that changes the result:
            torch.distributed.all_reduce = compressed_all_reduce

    Fix:
        On GPUs, check again without peer-to-peer transfers:
            NCCL_P2P_DISABLE=1 ddpdoctor check
        If that passes, turn off ACS in the PCIe switches, or the IOMMU (iommu=pt on the kernel's command line).
        Otherwise look for code that replaces functions of torch.distributed, and reinstall torch.
    """

    code = "DD313"
    title = "collectives compute the right results"
    measurements = ("collectives",)

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if wrong := ranks.wrong_answers():
            more = f", and {plural(len(wrong) - 1, 'other case')}" if len(wrong) > 1 else ""
            return self.fail(
                _headline(wrong[0]) + more,
                ranks=tuple(sorted({rank for case in wrong for rank in case.elements})),
                evidence=[evidence for case in wrong[:_MOST_CASES] for evidence in _evidence(case)],
            )
        rows = next(iter(ranks.values("collectives").values()))["rows"]
        supported = {row["op"] for row in rows if not row.get("unsupported")}
        self.require(supported, f"{ranks.backend} supports none of the operations")
        verb = "gives" if len(supported) == 1 else "give"
        return Passed(
            f"{plural(len(supported), 'operation')} of {ranks.backend} {verb} the exact answer for float32, bfloat16 "
            "and int64",
            tuple(
                Evidence(f"{ranks.backend} does not support {row['op']} {row['dtype']}: {row['unsupported']}")
                for row in rows
                if row.get("unsupported")
            ),
        )


def _headline(wrong: Wrong) -> str:
    where = ranks_phrase(wrong.elements)
    if wrong.op == "barrier":
        return f"barrier let {where} pass before every rank had joined"
    index, expected, got = next(iter(wrong.elements.values()))
    return f"{_operation(wrong)} gave {where} a wrong answer: element {index} is {got}, not {expected}"


def _operation(wrong: Wrong) -> str:
    return f"{wrong.op} of {size(wrong.bytes)} {wrong.dtype}" if wrong.dtype else wrong.op


def _evidence(wrong: Wrong) -> tuple[Evidence, ...]:
    if wrong.op == "barrier":
        return by_state(wrong.elements, lambda it: f"barrier ended before rank {it[0]} joined")
    operation = _operation(wrong)
    return by_state(wrong.elements, lambda it: f"{operation}: element {it[0]} is {it[2]}, expected {it[1]}")
