from tests.support.logs import leaves_alone, lets_survive, names, raised

NAMED = [
    (
        "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 - Init COMPLETE\n"
        + raised(1, "FileNotFoundError", "[Errno 2] No such file or directory: 'out/last.pt'"),
        "rank 1 found no checkpoint or an incomplete one, and rank 0 found it",
    ),
    (
        "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 - Init COMPLETE\n"
        + raised(1, "FileNotFoundError", "[Errno 2] No such file or directory: 'out/model_best.pth.tar'"),
        "rank 1 found no checkpoint or an incomplete one, and rank 0 found it",
    ),
]

test_it_is_named = names("DD401", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD401",
    [
        raised(0, "FileNotFoundError", "[Errno 2] No such file or directory: 'out/last.pt'")
        + raised(1, "FileNotFoundError", "[Errno 2] No such file or directory: 'out/last.pt'"),
        raised(1, "FileNotFoundError", "[Errno 2] No such file or directory: 'data/train-007.tar'"),
        raised(1, "FileNotFoundError", "[Errno 2] No such file or directory: 'features/rank1.pt'"),
    ],
)

test_what_training_survived_is_not = lets_survive("DD401", NAMED[:1])
