from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(
            2,
            "RuntimeError",
            "Timed out initializing process group in store based barrier on rank: 2, for key: "
            "store_based_barrier_key:1 (world_size=4, worker_count=9, timeout=0:30:00)",
        ),
        "9 ranks joined a store made for 4",
    ),
    (
        raised(0, "torch.distributed.elastic.rendezvous.api.RendezvousClosedError", ""),
        "the rendezvous is closed: another launcher that used it has ended",
    ),
]

test_it_is_named = names("DD011", NAMED)

test_what_training_survived_is_not = lets_survive("DD011", NAMED[:2])
