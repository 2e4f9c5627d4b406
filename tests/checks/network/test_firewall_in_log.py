from tests.support.logs import lets_survive, names, raised

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL
        + "misc/socket.cc:480 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45678> failed : Connection timed out\n",
        "port 45678 of 10.0.0.2 did not answer after the rendezvous",
    ),
    (
        raised(
            2,
            "RuntimeError",
            "Gloo connectFullMesh failed with [../pair.cc:152] timed out connecting: SO_ERROR: Connection "
            "timed out, remote=[10.0.0.2]:28114 (rank=9, size=16)",
        ),
        "port 28114 of 10.0.0.2 did not answer after the rendezvous",
    ),
]

test_it_is_named = names("DD710", NAMED)

test_what_training_survived_is_not = lets_survive("DD710", NAMED[:2])
