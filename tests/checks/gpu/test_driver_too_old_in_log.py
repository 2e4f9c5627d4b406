from tests.support.logs import lets_survive, names, raised

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL
        + "init.cc:1270 NCCL WARN Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'\n",
        "the NVIDIA driver is too old for the CUDA that was loaded",
    ),
    (
        raised(0, "RuntimeError", "The NVIDIA driver on your system is too old (found version 11040)."),
        "the NVIDIA driver is too old for the CUDA that was loaded",
    ),
    (raised(2, "RuntimeError", "Found no NVIDIA driver on your system."), "rank 2 found no NVIDIA driver"),
    (
        "docker: Error response from daemon: nvidia-container-cli: initialization error: nvml error: driver/library "
        "version mismatch: unknown.\n",
        "the NVIDIA driver's library and its kernel module are of different versions",
    ),
]

test_it_is_named = names("DD808", NAMED)

test_what_training_survived_is_not = lets_survive("DD808", NAMED[:2])
