from ddpdoctor.check import Check
from ddpdoctor.group.record import GroupRecord, Stage
from ddpdoctor.host import Host
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Evidence, Family, Judgement, Passed
from ddpdoctor.redact import quote, show_value
from ddpdoctor.text import ranks_phrase


class RendezvousUnreachable(Check):
    """The ranks did not all meet.

    What it finds:
        MASTER_ADDR does not resolve, or the address of the rendezvous is refused, or does not answer in time, or
        not every rank joined: which did, and what the others said.

    Why it matters:
        Every rank connects to rank 0's store before anything else. One rank that cannot holds all of them until
        the rendezvous times out, and the message then says how many came, and not which.

    Example:
        A host name that only the login node knows:
            MASTER_ADDR=login-1 torchrun --nnodes 2 ... train.py

    Fix:
        Give an address of node 0 that every node reaches: --master-addr 10.0.0.1. On one node use --standalone,
        or 127.0.0.1.
    """

    code = "DD004"
    name = "rendezvous-unreachable"
    family = Family.LAUNCH
    title = "the ranks meet"
    breaks_group = True

    def examine_host(self, host: Host) -> Judgement:
        exported = None if "master_addr" in host.plan.explicit else host.environ.get("MASTER_ADDR")
        name = "MASTER_ADDR" if exported is not None else "--master-addr"
        address = exported if exported is not None else host.plan.master_addr
        found = host.system.resolve(address) if address else ()
        if found:
            return Passed(f"{name} {show_value('MASTER_ADDR', address)} is {found[0]}")
        return [
            self.fail(
                f"{name} {show_value('MASTER_ADDR', address)} does not resolve to an address",
                why="Every rank looks this name up to find rank 0's store. None finds it, and all wait until the "
                "rendezvous times out.",
                fix="unset MASTER_ADDR on one node; on several, give node 0's address: --master-addr 10.0.0.1\n"
                f"what this machine makes of the name: getent hosts {quote(address)}",
            )
        ]

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if ranks.stage is Stage.IMPORT:
            raise NotMeasured(ranks.broken or "torch was not imported")
        if ranks.stage is not Stage.JOIN:
            return Passed(
                f"all {ranks.plan.world_size} ranks met on port {ranks.port.port if ranks.port else '?'}"
            )
        joined = [one.rank for one in ranks.ranks if one.joined]
        missing = [one.rank for one in ranks.ranks if not one.joined]
        return [
            self.fail(
                f"{ranks_phrase(missing)} did not join the process group",
                why=f"{ranks.broken}. A group begins when all of its {ranks.plan.world_size} ranks have come.",
                fix=f"see whether every node reaches {quote(ranks.plan.master_addr)}: "
                f"nc -vz {ranks.plan.master_addr} {ranks.plan.master_port}",
                ranks=tuple(missing),
                evidence=(
                    *((Evidence("joined", tuple(joined)),) if joined else ()),
                    *(
                        Evidence(_last_line(one.failure.message), (one.rank,))
                        for one in ranks.ranks
                        if one.failure
                    ),
                    *(Evidence(line) for line in ranks.log),
                ),
            )
        ]


def _last_line(message: str) -> str:
    return next(iter(reversed(message.strip().splitlines())), "no message")
