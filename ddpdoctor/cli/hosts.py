"""A command on several hosts: they meet, and the one of rank 0 judges what all of them saw."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ddpdoctor import __version__, registry
from ddpdoctor.cli.report_output import REPORTED_BY
from ddpdoctor.cli.request import JOB_FOLDER, Request
from ddpdoctor.files import read_json, write_json
from ddpdoctor.group.group_record import GroupRecord, RankRecord, Stage
from ddpdoctor.hang.heartbeats import NOW
from ddpdoctor.job.command import RECORD
from ddpdoctor.job.job_folder import ENDING, JOB, SNAPSHOT
from ddpdoctor.job.several_hosts import HOSTS, read_hosts
from ddpdoctor.judge import Verdict
from ddpdoctor.launch import UNNUMBERED, Launch
from ddpdoctor.model import Finding, Report
from ddpdoctor.nodes import parcel
from ddpdoctor.nodes.agreement import Agreement
from ddpdoctor.nodes.channel import Message
from ddpdoctor.nodes.facts import NodeFacts, facts_of
from ddpdoctor.nodes.links import Doorbell, Link, try_links
from ddpdoctor.nodes.meeting import Nodes, NotMet, meet, nodes_phrase
from ddpdoctor.recorder.events.decode import Malformed, from_plain
from ddpdoctor.redact import mask_files
from ddpdoctor.text import listing
from ddpdoctor.trace import LostHost, Trace
from ddpdoctor.trace.record import NUMBERS

DELIVERY_SECONDS = 120.0
"""After the end of a run on the host of rank 0, for the records of the others to arrive; and there for the verdict."""
_GROUP, _JUDGED, _RUN, _VERDICTS, _REPORT = "group", "group judged", "run", "verdicts", "report"


class Hosts:
    """The hosts of one command.

    Attributes:
        nodes: all of them; None where this host is alone, or takes no part.
        not_met: why it takes no part though there are others, in a clause.
    """

    def __init__(self, request: Request, folder: Path, tell: Callable[[str], object]) -> None:
        self._request, self._folder, self._tell = request, folder, tell
        self.nodes: Nodes | None = None
        self.not_met: str | None = None
        self.notes: list[str] = []
        self._leader: tuple[LostHost, ...] = ()
        """The host of rank 0, where it was lost."""
        self._came: tuple[NodeFacts, ...] = ()
        self._links: tuple[Link, ...] = ()

    @property
    def judges(self) -> bool:
        """Whether this host writes the report."""
        return self.nodes is None or self.nodes.leads

    @property
    def broken(self) -> str | None:
        """Why the job cannot begin, in a clause; None where all hosts are there."""
        if self.nodes is None:
            return self.not_met
        return f"{nodes_phrase(self.nodes.absent)} did not join" if self.nodes.absent else None

    @property
    def agreement(self) -> Agreement | None:
        """For the run."""
        return Agreement(self.nodes, self._spare) if self.nodes else None

    @property
    def _spare(self) -> int:
        """How many of the hosts that came the job can lose."""
        return len(self.nodes.facts) - self._request.host.launch.min_nodes if self.nodes else 0

    def numbered(self, request: Request, deadline: float) -> Request:
        """The request with the number of this host, and of hosts, as far as only their meeting gives them."""
        launch = request.host.launch
        if launch.node_rank == UNNUMBERED or launch.spare_nodes:
            self.meet(launch, deadline)
            if self.nodes and not self.nodes.absent:
                came = len(self.nodes.facts)
                launch = replace(launch, nnodes=came, spare_nodes=self._spare)
            number = self.nodes.here.node_rank if self.nodes else launch.node_rank
            launch = replace(launch, node_rank=number)
        return replace(request, host=request.host.with_launch(launch))

    def meet(self, launch: Launch, deadline: float) -> None:
        """Wait for the other hosts, where there are others, and try the connections to them; once."""
        if launch.nnodes == 1 or self.nodes or self.not_met:
            return
        job = self._request.job
        here = facts_of(self._request.host, job.words if job else ())
        doorbell = Doorbell(here.address)
        try:
            self.nodes = meet(launch, replace(here, port=doorbell.port), deadline, self._tell)
            if not self.nodes.absent:
                self._links = try_links(self.nodes, self._tell)
        except NotMet as why:
            self.not_met = str(why)
        finally:
            doorbell.close()

    def close(self) -> None:
        """Leave."""
        if self.nodes is not None:
            self.nodes.close()

    # -- the live group -----------------------------------------------------------------------------------

    def no_group(self, launch: Launch) -> GroupRecord:
        """The record of a group that was not started, since a host did not come."""
        assert self.broken is not None
        ranks = tuple(RankRecord(rank) for rank in range(launch.world_size))
        record = GroupRecord(launch, ranks, launch.backend, stage=Stage.JOIN, broken=self.broken)
        return replace(self._described(record), absent=self.nodes.absent if self.nodes else (0,))

    def group(self, record: GroupRecord, deadline: float) -> GroupRecord:
        """The record of the group with what all hosts saw of their ranks; elsewhere that of this host."""
        if self.nodes is None:
            return record
        if not self.nodes.leads:
            self.nodes.channels[0].send(Message(_GROUP, group_values(record)))
            return record
        self._tell("waiting for what the other hosts saw of the group")
        messages = self.nodes.collect(_GROUP, deadline + DELIVERY_SECONDS)
        record = with_hosts_group(record, [message.values for message in messages.values()])
        return replace(self._described(record), broken=record.broken or self.lost(), lost=self.nodes.lost())

    def _described(self, record: GroupRecord) -> GroupRecord:
        nodes = tuple(self.nodes.facts.values()) if self.nodes else ()
        return replace(record, nodes=nodes, links=self._links)

    def group_is_judged(self, broken: str | None, deadline: float) -> str | None:
        """Agree on whether the job begins: why it does not, or None."""
        if self.nodes is None:
            return broken
        if self.nodes.leads:
            self.nodes.announce(Message(_JUDGED, {"broken": broken}))
            return broken
        self._tell("waiting for the host of rank 0")
        if (message := self.nodes.channels[0].receive(_JUDGED, deadline + 2 * DELIVERY_SECONDS)) is None:
            self._leave()
            return broken or self.not_met
        return message.values.get("broken")

    # -- a run --------------------------------------------------------------------------------------------

    def run(self, trace: Trace) -> tuple[Trace, list[Path]]:
        """The run of all hosts where this one judges, and its folders; elsewhere what this host has of it."""
        folder = self._folder / JOB_FOLDER
        if self.nodes is None:
            return trace, [folder]
        if not self.nodes.leads:
            self._deliver(folder)
            return trace, [folder]
        self._tell("waiting for the records of the other hosts")
        messages = self.nodes.collect(_RUN, time.monotonic() + DELIVERY_SECONDS)
        others = [self._unpacked(node, message) for node, message in messages.items()]
        folders = [folder, *filter(None, others)]
        whole = read_hosts(folders)
        lost = tuple(self._lost(node, why) for node, why in self.nodes.lost().items())
        self._note_missing({*messages})
        return replace(whole, lost=(*whole.lost, *lost)), folders

    def _deliver(self, folder: Path) -> None:
        assert self.nodes is not None
        self._tell("delivering the records of this host")
        mask_files(folder, self._request.host.environ)
        packed, cut = parcel.pack(folder, _files(folder))
        self.nodes.channels[0].send(Message(_RUN, {"cut": cut}, packed))

    def _unpacked(self, node: int, message: Message) -> Path | None:
        """The folder of what a host delivered; None where it is nothing that can be read."""
        assert self.nodes is not None
        facts = self.nodes.facts[node]
        folder = self._folder / HOSTS / f"{node:05}"
        try:
            parcel.unpack(message.body, folder)
            if not (folder / JOB).exists():
                raise parcel.Damaged("it holds no job")
        except (parcel.Damaged, OSError) as wrong:
            self.notes.append(f"what {facts.host} delivered cannot be read: {wrong}")
            return None
        if cut := message.values.get("cut"):
            self.notes.append(f"{facts.host} delivered only a part of {listing([str(name) for name in cut])}")
        ending = read_json(folder / ENDING)
        if isinstance(ending, dict) and isinstance(ending.get("clock"), (int, float)):
            write_json(folder / ENDING, {**ending, "clock": ending["clock"] - facts.skew})
        return folder

    def _lost(self, node: int, why: str) -> LostHost:
        assert self.nodes is not None
        facts = self.nodes.facts[node]
        return LostHost(facts.host, self.nodes.ranks(node) or facts.ranks, why)

    def _note_missing(self, delivered: set[int]) -> None:
        assert self.nodes is not None
        lost = self.nodes.lost()
        silent = [node for node in self.nodes.channels if node not in delivered and node not in lost]
        for facts in (self.nodes.facts[node] for node in silent):
            self.notes.append(f"{facts.host} did not deliver its records; its ranks were not judged")

    # -- the end ------------------------------------------------------------------------------------------

    def verdicts(self, here: Sequence[Verdict]) -> list[Verdict]:
        """The verdicts of all hosts on themselves where this one judges."""
        if self.nodes is None:
            return list(here)
        if not self.nodes.leads:
            plain = [asdict(finding) for verdict in here for finding in verdict.findings]
            self.nodes.channels[0].send(Message(_VERDICTS, {"findings": plain}))
            return list(here)
        messages = self.nodes.collect(_VERDICTS, time.monotonic() + DELIVERY_SECONDS)
        by_host = {self.nodes.here.host: [finding for verdict in here for finding in verdict.findings]}
        for node, message in messages.items():
            plain = message.values["findings"]
            by_host[self.nodes.name(node)] = [from_plain(Finding, finding) for finding in plain]
        return _on_hosts(here, by_host)

    def announce(self, report: Report) -> None:
        """Tell the others how it ended."""
        if self.nodes is not None and self.nodes.leads:
            self.nodes.announce(Message(_REPORT, {"status": report.exit_status}))

    def report_of_leader(self, started: float) -> Report | None:
        """What the host of rank 0 reports, as far as this one says it; None where that one is not there any more."""
        assert self.nodes is not None
        self._tell("waiting for the report of the host of rank 0")
        message = self.nodes.channels[0].receive(_REPORT, time.monotonic() + 2 * DELIVERY_SECONDS)
        if message is None:
            self._leave()
            return None
        status = int(message.values["status"])
        run = {REPORTED_BY: self.nodes.name(0)}
        return Report(__version__, tuple(sys.argv[1:]), status, time.monotonic() - started, run=run)

    def lost(self) -> str | None:
        """The first host that was lost, and why, in a clause; None where all are there."""
        lost = self.nodes.lost() if self.nodes else {}
        return next(
            (f"{self.nodes.name(node)} was lost: {why}" for node, why in lost.items() if self.nodes), None
        )

    def alone(self, trace: Trace) -> Trace:
        """The run of this host, where that of rank 0 was lost."""
        return replace(trace, lost=self._leader)

    def group_alone(self, record: GroupRecord) -> GroupRecord:
        """The group as this host saw it, where that of rank 0 was lost."""
        lost = {0: self._leader[0].reason} if self._leader else {}
        return replace(record, nodes=self._came, broken=record.broken or self.not_met, lost=lost)

    def _leave(self) -> None:
        """Go on alone."""
        assert self.nodes is not None
        why = self.nodes.lost().get(0, "it did not answer in time")
        self._leader, self._came = (self._lost(0, why),), tuple(self.nodes.facts.values())
        self.not_met = f"{self.nodes.name(0)}, the host of rank 0, was lost: {why}"
        self.notes.append(f"{self.not_met}; only the ranks of this host were judged")
        self.nodes.close()
        self.nodes = None


def _files(folder: Path) -> list[Path]:
    """The files of a job that are judged, the most important first."""
    ranked = [folder / JOB, folder / ENDING]
    for suffix in (".jsonl", NOW):
        ranked += sorted((folder / RECORD).glob(f"*{suffix}"))
    ranked += sorted(path for path in (folder / SNAPSHOT).rglob("*") if path.is_file())
    ranked += sorted((folder / RECORD).glob(f"*{NUMBERS}"))
    rest = sorted(path for path in folder.rglob("*") if path.suffix in (".log", ".json") and path.is_file())
    return [path for path in dict.fromkeys([*ranked, *rest]) if path.exists()]


def group_values(record: GroupRecord) -> dict[str, Any]:
    """What the host of rank 0 needs to know of the group on another host."""
    here = [rank for rank in record.ranks if rank.pid or not rank.joined]
    ranks = [asdict(rank) for rank in here]
    return {"ranks": ranks, "broken": record.broken, "out_of_time": record.out_of_time}


def with_hosts_group(record: GroupRecord, others: Sequence[Mapping[str, Any]]) -> GroupRecord:
    """The record of the group with what the other hosts saw of it, each as :func:`group_values`. A host whose time was
    over has ended its ranks: what those of the others say of closed connections is our doing."""
    parts = [record, *(_of_host(values) for values in others)]
    ranks = {rank.rank: rank for part in parts for rank in part.ranks}
    out_of_time = [part for part in parts if part.out_of_time]
    if out_of_time:
        ranks = {
            number: replace(rank, failure=None, died=None) if rank.is_victim else rank
            for number, rank in ranks.items()
        }
    return replace(
        record,
        ranks=tuple(ranks[number] for number in sorted(ranks)),
        broken=next(filter(None, (part.broken for part in (*out_of_time, *parts))), None),
        out_of_time=bool(out_of_time),
    )


def _of_host(values: Mapping[str, Any]) -> GroupRecord:
    try:
        ranks = tuple(from_plain(RankRecord, plain) for plain in values["ranks"])
    except (Malformed, KeyError, TypeError):
        ranks = ()
    broken, out_of_time = values.get("broken"), bool(values.get("out_of_time"))
    return GroupRecord(Launch(), ranks, broken=broken, out_of_time=out_of_time)


def _on_hosts(here: Sequence[Verdict], by_host: Mapping[str, Sequence[Finding]]) -> list[Verdict]:
    """The verdicts of this host with what all hosts found, each finding with the hosts that it is on."""
    found: dict[tuple[str, str], dict[str, Finding]] = {}
    for host, findings in by_host.items():
        for finding in findings:
            found.setdefault((finding.code, finding.headline), {})[host] = finding
    united: dict[str, list[Finding]] = {}
    for (code, headline), on_hosts in found.items():
        where = "" if len(on_hosts) == len(by_host) else f", on {listing([*on_hosts])}"
        first = next(iter(on_hosts.values()))
        united.setdefault(code, []).append(replace(first, headline=headline + where))
    of_here = {verdict.code for verdict in here}
    verdicts = [_with(verdict, united.get(verdict.code, [])) for verdict in here]
    strange = ((registry.by_code(code), findings) for code, findings in united.items() if code not in of_here)
    source = here[0].source if here else None
    return verdicts + [Verdict(check, source, tuple(its)) for check, its in strange if check and source]


def _with(verdict: Verdict, findings: Sequence[Finding]) -> Verdict:
    if not findings:
        return verdict
    return replace(verdict, findings=tuple(findings), passed=None, reason=None, cut_short=False)


def facts_by_rank(nodes: Iterable[NodeFacts]) -> dict[int, str]:
    """The host of each rank, where every host has as many."""
    return {rank: facts.host for facts in nodes for rank in facts.ranks}
