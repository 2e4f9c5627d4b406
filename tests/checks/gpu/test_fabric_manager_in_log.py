from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(
            0,
            "torch.distributed.DistBackendError",
            "NCCL error\nLast error:\nFailed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : "
            "CUDA error 401 'the operation cannot be performed in the present state'",
        ),
        "the NVLink fabric of this machine was not ready",
    ),
    (
        raised(
            0,
            "RuntimeError",
            "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        ),
        "the NVLink fabric of this machine was not ready",
    ),
]

test_it_is_named = names("DD804", NAMED)

test_what_training_survived_is_not = lets_survive("DD804", NAMED[:2])
