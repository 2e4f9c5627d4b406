from tests.support.logs import lets_survive, names

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL
        + "NCCL WARN Connect to fe80::ec4:7aff:fe0c:1b2c%enp1s0<44321> failed : Network is unreachable\n",
        "a rank announced the link-local address fe80::ec4:7aff:fe0c:1b2c%enp1s0",
    ),
    (
        NCCL
        + "misc/socket.cc:480 NCCL WARN socketStartConnect: Connect to 10.9.0.2<44321> failed : No route to host\n",
        "there was no route to 10.9.0.2",
    ),
    (
        NCCL + "include/socket.h:403 NCCL WARN Connect to 169.254.3.1<44321> failed : Connection refused\n",
        "a rank announced the link-local address 169.254.3.1",
    ),
]

test_it_is_named = names("DD709", NAMED)

test_what_training_survived_is_not = lets_survive("DD709", NAMED[:2])
