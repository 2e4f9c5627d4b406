from tests.support.logs import TRAINING, leaves_alone, lets_survive, names, raised

NAMED = [
    (
        raised(
            0,
            "torch.distributed.DistStoreError",
            "Timed out after 901 seconds waiting for clients. 3/4 clients joined.",
        ),
        "3 of 4 ranks joined the store before the time limit",
    ),
    (
        raised(
            0,
            "torch.distributed.DistStoreError",
            "Timed out after 0:15:00 waiting for clients. 3/4 clients joined.",
        ),
        "3 of 4 ranks joined the store before the time limit",
    ),
    (
        raised(
            1,
            "TimeoutError",
            "The client socket has timed out after 60s while trying to connect to (10.0.0.9, 29500).",
        ),
        "no store answered at 10.0.0.9 port 29500",
    ),
    (
        "[E socket.cpp:719] [c10d] The client socket has failed to connect to any network address of "
        "(10.0.0.9, 29500).\n",
        "no store answered at 10.0.0.9 port 29500",
    ),
    (
        raised(
            2,
            "RuntimeError",
            "Timed out initializing process group in store based barrier on rank: 2, for key: "
            "store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)",
        ),
        "3 of 4 ranks joined the store before the time limit",
    ),
    (
        raised(
            0,
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError",
            "The connection to the C10d store has failed. See inner exception for details.",
        ),
        "the rendezvous did not answer in time",
    ),
]

test_it_is_named = names("DD004", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD004",
    [
        "[W socket.cpp:663] [c10d] The client socket has failed to connect to any network address of "
        "(10.0.0.9, 29500).\n" + 8 * TRAINING,
    ],
)

test_what_training_survived_is_not = lets_survive("DD004", NAMED[:2])
