import pytest

from ddpdoctor.model import Role, Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised, summary

BIND = "[W socket.cpp:426] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use)."
LISTEN = (
    "The server socket has failed to listen. port: 29511, name: EADDRINUSE, message: address already in use"
)


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        (f"{BIND}\n" + raised(0, "RuntimeError", BIND), "port 29500 was taken when the job started"),
        (
            raised(0, "torch.distributed.DistNetworkError", LISTEN),
            "port 29511 was taken when the job started",
        ),
        (
            raised(0, "RuntimeError", "Address already in use"),
            "the master port was taken when the job started",
        ),
        (
            raised(0, "OSError", "[Errno 98] Address already in use"),
            "the master port was taken when the job started",
        ),
    ],
)
def test_the_port_is_named(text, headline):
    finding = only_finding("DD002", Source.LOG, log(text))
    assert finding.headline == headline
    assert finding.evidence[0].text.startswith("job.log:")
    assert finding.sighting.role is Role.CAUSE
    assert [one.code for one in explained(text)] == ["DD002"]


def test_a_job_that_found_another_port_goes_on():
    skipped("DD002", Source.LOG, log(f"Port 6006 is already in use, trying 6007\n{8 * TRAINING}"))


def test_an_exception_that_was_caught_is_none():
    skipped("DD002", Source.LOG, log(raised(0, "OSError", "Address already in use") + 8 * TRAINING))


def test_the_launchers_summary_alone_says_nothing_of_a_port():
    skipped("DD002", Source.LOG, log(summary(0)))


def test_a_port_of_something_else_in_a_short_training():
    skipped("DD002", Source.LOG, log(f"metrics: Address already in use, no dashboard\n{2 * TRAINING}"))


def test_a_port_that_is_not_for_this_user():
    message = "The server socket has failed to listen on any local network address. port: 443, name: EACCES"
    (finding,) = explained(raised(0, "torch.distributed.DistNetworkError", message))
    assert (finding.code, finding.headline) == (
        "DD002",
        "the launcher was not allowed to listen on the master port",
    )
