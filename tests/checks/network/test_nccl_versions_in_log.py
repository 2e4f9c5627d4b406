from tests.support.logs import lets_survive, names, raised, summary

NAMED = [
    (
        raised(0, "ImportError", "/x/libtorch_cuda.so: undefined symbol: ncclCommRegister"),
        "the libnccl that was loaded has no ncclCommRegister, which torch needs",
    ),
    (
        "NCCL version 2.18.3+cuda12.1\nNCCL version 2.21.5+cuda12.4\n" + summary(1),
        "ranks loaded NCCL 2.18.3 and 2.21.5",
    ),
]

test_it_is_named = names("DD708", NAMED)

test_what_training_survived_is_not = lets_survive("DD708", NAMED[:1])
