from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(0, "RuntimeError", "Distributed package doesn't have NCCL built in"),
        "this torch has no backend NCCL",
    ),
    (
        raised(0, "RuntimeError", "No backend type associated with device type cpu"),
        "a collective was called on a cpu tensor, and the group has no backend for that device",
    ),
    (
        raised(0, "ValueError", "ProcessGroupNCCL is only supported with GPUs, no GPUs found!"),
        "backend nccl found no GPU",
    ),
    (
        raised(0, "RuntimeError", "Tensors must be CUDA and dense"),
        "a collective was called on a cpu tensor, and the group has no backend for that device",
    ),
    (raised(0, "ValueError", "Invalid backend: 'ncc'"), "this torch has no backend ncc"),
]

test_it_is_named = names("DD013", NAMED)

test_what_training_survived_is_not = lets_survive("DD013", NAMED[:2])
