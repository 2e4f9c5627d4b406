from tests.support.logs import lets_survive, names

NAMED = [
    ("srun: error: Node failure on node-b\n", "host node-b was lost while the job ran"),
    (
        "slurmstepd: error: *** JOB 7 ON node-a CANCELLED AT 2026-11-23T10:02:11 DUE TO NODE FAILURE ***\n",
        "a host was lost while the job ran",
    ),
    (
        "slurmstepd: error: *** JOB 7 ON node-a CANCELLED AT 2026-11-23T10:02:11 DUE TO NODE FAILURE ***\n"
        "srun: error: Node failure on node-b\n",
        "host node-b was lost while the job ran",
    ),
    (
        "Message: Pod was terminated in response to imminent node shutdown.\n",
        "a host was lost while the job ran",
    ),
    (
        "  Remote daemon: [[31411,0],1] on node node-b\n",
        "host node-b was lost while the job ran",
    ),
    (
        "  Warning  NodeNotReady  3m  node-controller  Node is not ready\n",
        "a host was lost while the job ran",
    ),
]

test_it_is_named = names("DD315", NAMED)

test_what_training_survived_is_not = lets_survive("DD315", NAMED)
