from tests.support.logs import lets_survive, names, raised

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        raised(
            1,
            "torch.OutOfMemoryError",
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which "
            "1.50 GiB is free. Process 4242 has 40.00 GiB memory in use. Including non-PyTorch memory, this "
            "process has 37.00 GiB memory in use.",
        ),
        "rank 1 ran out of memory on GPU 1 (79.15 GiB), asking for 2.00 GiB",
    ),
    (
        raised(
            1,
            "RuntimeError",
            "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 9.00 GiB "
            "already allocated)",
        ),
        "rank 1 ran out of memory on GPU 0 (10.76 GiB), asking for 20.00 MiB",
    ),
    (NCCL + "init.cc:1 NCCL WARN Cuda failure 'out of memory'\n", "a rank ran out of memory on its GPU"),
    (
        NCCL + "alloc.h:1 NCCL WARN Failed to CUDA calloc async 9437184 bytes\n",
        "a rank ran out of memory on its GPU",
    ),
]

test_it_is_named = names("DD806", NAMED)

test_what_training_survived_is_not = lets_survive("DD806", NAMED[:2])
