from tests.support.logs import lets_survive, names, raised

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
