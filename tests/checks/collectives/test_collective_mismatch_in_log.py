from tests.support.logs import explained, lets_survive, names, raised, summary
from tests.support.waits import status, wait

NAMED = [
    (
        raised(
            1,
            "RuntimeError",
            "Detected mismatch between collectives on ranks. Rank 1 is running collective: "
            "CollectiveFingerPrint(SequenceNumber=7, OpType=ALLREDUCE, TensorShape=[20], TensorDtypes=Float, "
            "TensorDeviceTypes=TensorOptions(x)), but Rank 0 is running collective: "
            "CollectiveFingerPrint(SequenceNumber=7, OpType=BROADCAST, TensorShape=[10], TensorDtypes=Float, "
            "TensorDeviceTypes=TensorOptions(x)).",
        ),
        "rank 1 ran ALLREDUCE [20] where rank 0 ran BROADCAST [10]",
    ),
    (
        raised(
            1,
            "RuntimeError",
            "[enforce fail at ../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= "
            "op.nbytes. 80 vs 40",
        ),
        "a rank sent 80 bytes where its peer expected 40",
    ),
    (
        raised(
            0,
            "RuntimeError",
            "Detected mismatch between collectives on ranks. Rank 0 is running collective: "
            "CollectiveFingerPrint(SequenceNumber=3OpType=BARRIER), but Rank 1 is running collective: "
            "CollectiveFingerPrint(SequenceNumber=3OpType=ALLREDUCE).",
        ),
        "rank 0 ran BARRIER where rank 1 ran ALLREDUCE",
    ),
]

test_it_is_named = names("DD302", NAMED)

test_what_training_survived_is_not = lets_survive("DD302", NAMED[:2])


def apart(*operations, group="0(default_pg)"):
    text = "".join(
        wait(rank, 12, operation) + status(rank, 12, 13, 11) for rank, operation in enumerate(operations)
    )
    return text.replace("0(default_pg)", group)


def test_ranks_that_waited_in_different_operations_with_one_number():
    (finding,) = explained(apart("BROADCAST", "ALLREDUCE", "ALLREDUCE") + summary(1, -6))
    assert (finding.code, finding.ranks) == ("DD302", (0,))
    assert finding.headline == (
        "rank 0 waited in BROADCAST number 12 of 10 elements, ranks 1-2 in ALLREDUCE number 12 of 10 elements"
    )
    assert explained(apart("BROADCAST", "ALLREDUCE"))[0].ranks == (0, 1)


def test_numbers_of_groups_of_some_ranks_are_not_compared():
    (finding,) = explained(apart("BROADCAST", "ALLREDUCE", "ALLREDUCE", group="3"))
    assert finding.code != "DD302"


def test_an_exception_outranks_what_the_watchdogs_say():
    assert explained(apart("BROADCAST", "ALLREDUCE") + raised(2, "KeyError", "'x'"))[0].code == "DD304"
