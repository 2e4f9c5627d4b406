"""What becomes of findings once all sources were asked: which are dropped, united and silenced, and the lines."""

from dataclasses import replace
from typing import Any

import pytest

from ddpdoctor.judge import Verdict, explains, judge, merge, skip_all
from ddpdoctor.model import Evidence, Finding, Kind, Level, Outcome, Passed, Source, Subject, Where
from ddpdoctor.trace.recording import Recording
from tests.support.judging import check
from tests.support.loading import RANDOM, drawing
from tests.support.recordings import recorded
from tests.support.recordings import replace as replace_events

LAST, BEST = Subject(Kind.PATH, "/jobs/last.pt"), Subject(Kind.PATH, "/jobs/best.pt")
LOADER = Subject(Kind.LOADER, "train.py:8")


def finding(code: str, *about: Subject, **details: Any) -> Finding:
    return check(code).fail(
        f"{code} of {[subject.name for subject in about]}", why="", fix="", about=about, **details
    )


def verdict(code: str, *findings: Finding, source: Source = Source.RUN) -> Verdict:
    return Verdict(check(code), source, findings)


RACES = (finding("DD020", LAST, where=Where("a.py", 3)), finding("DD020", BEST, where=Where("b.py", 7)))


@pytest.mark.parametrize(
    ("library", "words"),
    [
        ("", "DistributedSampler"),
        ("some.package", "DistributedSampler"),
        ("accelerate.accelerator", "accelerator.prepare"),
        ("lightning.pytorch.trainer.trainer", "use_distributed_sampler"),
        ("lightning.fabric.fabric", "setup_dataloaders"),
        ("ray.train.torch.train_loop_utils", "prepare_data_loader"),
    ],
)
def test_the_fix_is_in_the_words_of_the_framework_that_wrapped_the_model(library: str, words: str) -> None:
    def everything(rank: int, one: Recording) -> Recording:
        wrapped = replace_events(
            one, wrappers=[replace(wrapper, library=library) for wrapper in one.wrappers]
        )
        return drawing(wrapped, range(8), sampler=RANDOM, loader={"samples": 8, "content": "c0ffee"})

    (verdict,) = judge(Source.RUN, [check("DD101")], recorded(change=everything), print)
    assert words in verdict.findings[0].fix


@pytest.mark.parametrize(
    ("cause", "symptom", "explained"),
    [
        ((LAST,), (LAST,), True),
        ((LAST,), (BEST,), False),
        ((LAST, BEST), (BEST,), True),
        ((LAST, LOADER), (LAST,), True),
        ((LAST,), (LOADER,), True),
        ((), (LAST,), True),
        ((LAST,), (), True),
        ((), (), True),
    ],
)
def test_a_cause_explains_symptoms_of_the_same_subject(
    cause: tuple[Subject, ...], symptom: tuple[Subject, ...], explained: bool
) -> None:
    assert explains(finding("DD402", *cause), finding("DD020", *symptom), ("DD402",)) is explained


def test_a_cause_is_named_by_its_symptom_and_more_than_information() -> None:
    cause = finding("DD402", LAST)
    assert not explains(cause, finding("DD020", LAST), ("DD401",))
    assert not explains(replace(cause, level=Level.INFO), finding("DD020", LAST), ("DD402",))


def test_what_has_not_happened_yet_explains_nothing() -> None:
    alone, stop = finding("DD303"), finding("DD308")
    assert explains(stop, alone, ("DD308",))
    assert not explains(replace(stop, foreseen=True), alone, ("DD308",))


def test_only_the_symptom_is_dropped_and_not_its_siblings() -> None:
    merged = merge([verdict("DD402", finding("DD402", LAST)), verdict("DD020", *RACES)])
    assert [left.code for left in merged.findings] == ["DD020", "DD402"]
    race, _ = merged.results
    assert (race.outcome, race.text) == (Outcome.FAIL, RACES[1].headline)


def test_a_check_whose_findings_are_all_explained_is_skipped() -> None:
    merged = merge([verdict("DD402", finding("DD402", LAST, BEST)), verdict("DD020", *RACES)])
    race, _ = merged.results
    assert (race.outcome, race.reason) == (Outcome.SKIP, "its findings are explained by DD402")


def test_a_silenced_finding_leaves_its_sibling() -> None:
    merged = merge([verdict("DD020", *RACES)], lambda found: found is RACES[0])
    assert (merged.findings, merged.silenced) == (RACES[1:], RACES[:1])
    (line,) = merged.results
    assert (line.outcome, line.text) == (Outcome.FAIL, RACES[1].headline)


def test_a_silenced_cause_still_explains_its_symptom() -> None:
    cause = finding("DD402", LAST)
    merged = merge([verdict("DD402", cause), verdict("DD020", RACES[0])], lambda found: found is cause)
    assert merged.findings == ()


def test_a_check_whose_findings_are_all_silenced_is_skipped_and_counted() -> None:
    (line,) = merge([verdict("DD020", *RACES)], lambda found: True).results
    assert (line.outcome, line.reason) == (Outcome.SKIP, "2 findings silenced")
    broke = Verdict(check("DD020"), Source.HOST, reason="KeyError: 1", broke=True)
    (line,) = merge([verdict("DD020", *RACES), broke], lambda found: True).results
    assert line.outcome is Outcome.ERROR


def test_the_line_tells_the_worst_and_counts_the_others() -> None:
    milder = replace(RACES[0], level=Level.WARN)
    (line,) = merge([verdict("DD020", milder, RACES[1])]).results
    assert (line.outcome, line.text) == (Outcome.FAIL, f"{RACES[1].headline} (and 1 more)")


def test_information_lets_a_check_pass_beside_what_another_source_saw() -> None:
    informing = replace(RACES[0], level=Level.INFO)
    passed = Verdict(check("DD020"), Source.HOST, passed=Passed("local disk", (Evidence("tmpfs"),)))
    (line,) = merge([passed, verdict("DD020", informing)]).results
    assert (line.outcome, line.text) == (Outcome.PASS, f"local disk; {informing.headline}")
    assert line.evidence == (Evidence("tmpfs"),)


def test_what_several_sources_found_is_one_finding() -> None:
    port = Subject(Kind.PORT, "29500")
    host = finding("DD003", port, ranks=(0,), evidence=(Evidence("taken"),))
    run = finding("DD003", port, ranks=(1,), where=Where("a.py", 3), evidence=(Evidence("refused"),))
    verdicts = [verdict("DD003", run), verdict("DD003", host, source=Source.HOST)]
    (united,) = merge(verdicts).findings
    assert (united.ranks, united.where) == ((0, 1), run.where)
    assert united.evidence == (*host.evidence, *run.evidence)
    other = finding("DD003", Subject(Kind.PORT, "29501"))
    assert len(merge([*verdicts, verdict("DD003", other, source=Source.GROUP)]).findings) == 2


def test_what_one_source_tells_apart_stays_apart() -> None:
    twice = (finding("DD020", LAST, where=Where("a.py", 3)), finding("DD020", LAST, where=Where("a.py", 9)))
    assert merge([verdict("DD020", *twice)]).findings == twice


def test_the_reason_of_a_skip_follows_the_title() -> None:
    (line,) = merge(skip_all(Source.RUN, [check("DD020")], "there is one rank")).results
    assert line.text == f"{check('DD020').title}: there is one rank"
