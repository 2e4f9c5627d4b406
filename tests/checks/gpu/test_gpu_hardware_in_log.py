from tests.support.logs import leaves_alone, lets_survive, names, raised, summary

NAMED = [
    (
        raised(0, "RuntimeError", "CUDA error: uncorrectable ECC error encountered"),
        "the GPU of rank 0 reported a hardware error: uncorrectable ECC error encountered",
    ),
    (
        "[ 1.2] NVRM: Xid (PCI:0000:4f:00): 79, pid=1, GPU has fallen off the bus.\n" + summary(1),
        "a GPU reported a hardware error: NVRM: Xid (PCI:0000:4f:00): 79",
    ),
    (
        "[ 1.2] NVRM: The NVIDIA GPU 0000:b3:00.0\n NVRM: fallen off the bus and is not responding to commands.\n"
        + summary(1),
        "a GPU reported a hardware error: NVRM: fallen off the bus",
    ),
    (
        "Unable to determine the device handle for GPU0000:03:00.0: Unknown Error\n" + summary(1),
        "a GPU reported a hardware error: Unable to determine the device handle for GPU0000:03:00.0: Unknown Error",
    ),
]

test_it_is_named = names("DD805", NAMED)

test_what_training_survived_is_not = lets_survive("DD805", NAMED[:1])

test_an_xid_of_a_program_is_not = leaves_alone(
    "DD805",
    [
        f"[ 1.2] NVRM: Xid (PCI:0000:4f:00): {number}, pid=1, name=python, Ch 00000008\n" + summary(1)
        for number in (13, 31, 43, 45, 69)
    ],
)
