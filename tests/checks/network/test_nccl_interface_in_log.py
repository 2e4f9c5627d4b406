from tests.support.logs import lets_survive, names, raised, summary

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL + "bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found\n",
        "NCCL found no network interface",
    ),
    (
        NCCL
        + "NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth9\n"
        + NCCL
        + "bootstrap.cc:85 NCCL WARN No usable interface found\n",
        "NCCL found no network interface for NCCL_SOCKET_IFNAME='eth9'",
    ),
    (
        raised(
            0,
            "torch.distributed.DistBackendError",
            "NCCL error in: x\nncclInternalError: Internal check failed.\nLast error:\nncclSocketInit: "
            "connecting to address  with family 41216 is neither AF_INET(2) nor AF_INET6(10)",
        ),
        "NCCL found no network interface",
    ),
    (
        "a:1:1 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>\nb:1:1 [0] NCCL INFO Bootstrap : Using "
        "docker0:172.17.0.1<0>\n" + summary(1),
        "NCCL chose interface docker0, which does not lead to other nodes",
    ),
]

test_it_is_named = names("DD701", NAMED)

test_what_training_survived_is_not = lets_survive("DD701", NAMED[:2])
