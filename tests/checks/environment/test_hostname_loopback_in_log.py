from tests.support.logs import TRAINING, leaves_alone, lets_survive, names, raised

NAMED = [
    (
        raised(
            1,
            "torch.distributed.DistNetworkError",
            "The client socket has timed out after 600000ms while trying to connect to (127.0.1.1, 29500).",
        ),
        "a rank waited for the store at 127.0.1.1, which is its own node",
    ),
    (
        raised(
            1,
            "TimeoutError",
            "The client socket has timed out after 300s while trying to connect to (0.0.48.57, 29500).",
        ),
        "a rank waited for the store at 0.0.48.57, which is a hostname read as a number",
    ),
    (
        "[W socket.cpp:601] [c10d] The IPv6 network addresses of (node-7, 29500) cannot be retrieved (gai "
        "error: -2 - Name or service not known).\n"
        + raised(
            1,
            "torch.distributed.DistNetworkError",
            "The client socket has failed to connect to any network address of (node-7, 29500).",
        ),
        "hostname 'node-7' did not resolve",
    ),
]

UNRESOLVED = (
    "[W socket.cpp:764] [c10d] The IPv6 network addresses of (node-7, 29500) cannot be retrieved (gai error: -2 - "
    "Name or service not known).\n"
)
NAMED.append((8 * UNRESOLVED, "hostname 'node-7' did not resolve"))

test_it_is_named = names("DD003", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD003",
    [
        "[W socket.cpp:601] [c10d] The IPv6 network addresses of (node-7, 29500) cannot be retrieved (gai "
        "error: -2 - Name or service not known).\n" + 8 * TRAINING,
        8 * UNRESOLVED + "rank 0 of 2 is ready\n",
        raised(0, "urllib.error.URLError", "<urlopen error [Errno -3] Temporary failure in name resolution>"),
    ],
)

test_what_training_survived_is_not = lets_survive("DD003", NAMED[:2])
