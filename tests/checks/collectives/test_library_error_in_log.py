import pytest

from ddpdoctor.model import Level, Role, Source
from tests.support.judging import only_finding
from tests.support.logs import TRAINING, explained, leaves_alone, lets_survive, log, names, raised, summary
from tests.support.waits import sizes, wait

NCCL = "node-a:100:201 [0] "
UNKNOWN = NCCL + "new_part.cc:12 NCCL WARN The token of channel 7 is lost\n"
PATH = NCCL + "graph/xml.cc:332 NCCL WARN Could not find real path of /sys/class/pci_bus/0000:1e\n"
MESSAGE = (
    "NCCL error in: x.cpp:94, unhandled system error\nncclSystemError: A call failed.\nLast error:\nno luck"
)
BACKEND = "torch.distributed.DistBackendError"
NAMED = [
    (UNKNOWN, "NCCL reported: 'The token of channel 7 is lost'"),
    (PATH, "NCCL reported: 'Could not find real path of /sys/class/pci_bus/0000:1e'"),
    (raised(1, BACKEND, MESSAGE), "NCCL reported on rank 1: 'no luck'"),
    (
        "[E102 03:04:05.100 TCPStore.cpp:88] [c10d] the store met a strange state\n",
        "torch.distributed reported: '[c10d] the store met a strange state'",
    ),
    (
        raised(0, "RuntimeError", "CUDA error: all CUDA-capable devices are busy or unavailable"),
        "CUDA reported on rank 0: 'RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable'",
    ),
]

test_it_is_named = names("DD314", NAMED)

test_what_training_survived_is_not = lets_survive("DD314", NAMED[:2])

test_what_another_check_names_is_not_told_again = leaves_alone(
    "DD314",
    [
        raised(0, "KeyError", "'label'"),
        raised(
            0, "RuntimeError", "[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4021"
        ),
        NCCL
        + "misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node-b<51159>\n"
        + summary(1),
        sizes(2) + wait(0) + UNKNOWN,
    ],
)


def test_an_exception_of_the_script_outranks_a_message_that_nobody_knows():
    assert [finding.code for finding in explained(UNKNOWN + raised(1, "KeyError", "'x'"))] == ["DD304"]


def test_a_message_that_is_known_comes_before_the_exception_that_follows_from_it():
    assert [finding.code for finding in explained(PATH + raised(1, BACKEND, MESSAGE) + summary(1))] == [
        "DD314"
    ]


def test_an_abort_after_it_is_its_consequence():
    assert [finding.code for finding in explained(UNKNOWN + summary(1, -6))] == ["DD314"]


def test_what_the_message_means_is_said_as_far_as_it_is_known():
    finding = only_finding("DD314", Source.LOG, log(raised(1, BACKEND, MESSAGE)))
    assert finding.why.startswith("A call of the operating system failed inside of NCCL")
    assert finding.sighting.role is Role.LIBRARY
    assert only_finding("DD314", Source.LOG, log(UNKNOWN)).why.startswith("ddpdoctor does not know")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]\n",
            "Successful jobs print this line",
        ),
        (
            "proxy.cc:808 NCCL WARN Proxy Call to rank 1 failed (Connect)\n",
            "It is a consequence of an earlier failure",
        ),
    ],
)
def test_a_harmless_line_and_a_consequence_alone_are_information(text, why):
    (finding,) = explained(NCCL + text)
    assert (finding.code, finding.level) == ("DD314", Level.INFO)
    assert finding.why.startswith(why)
    assert explained(NCCL + text + 6 * TRAINING) == ()


def test_a_message_keeps_what_stands_before_the_place_in_gloos_source():
    message = "Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error"
    finding = only_finding("DD314", Source.LOG, log(raised(1, "RuntimeError", message)))
    assert finding.headline.endswith(message + "'")


def test_another_vendors_library_is_named():
    error = raised(
        1, "RuntimeError", "[ERROR] HCCL error in: torch_npu/csrc/distributed/ProcessGroupHCCL.cpp:64"
    )
    (finding,) = explained(error)
    assert finding.code == "DD314"
    assert finding.headline.startswith("HCCL reported on rank 1: ")
