"""The options of the recorder, from the command to a process of the job."""

import pytest

from ddpdoctor.recorder.options import RecorderOptions


@pytest.mark.parametrize(
    "options",
    [
        RecorderOptions(),
        RecorderOptions(3, 12.5, True, 9.5, True, 64, "0,8", 4, "/run/record", True),
    ],
)
def test_what_is_asked_of_the_recorder_arrives(
    options: RecorderOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in options.to_environment().items():
        monkeypatch.setenv(name, value)
    assert RecorderOptions.of_environment() == options


def test_a_run_that_another_run_starts_has_its_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = RecorderOptions(full=True, rehearse=True), RecorderOptions(batches=3)
    for name, value in {**outer.to_environment(), **inner.to_environment()}.items():
        monkeypatch.setenv(name, value)
    assert RecorderOptions.of_environment() == inner
