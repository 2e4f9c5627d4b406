from tests.support.logs import explained, leaves_alone, lets_survive, names, raised, summary

NAMED = [
    (
        "[  12.3] Out of memory: Killed process 4242 (python) total-vm:1kB\n" + summary(1, -9),
        "the out-of-memory killer ended rank 1",
    ),
    (summary(1, -9), "rank 1 was killed by SIGKILL, most likely because the host ran out of memory"),
    (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM "
        "Killed.\nsrun: error: node-a: task 3: Out Of Memory\n",
        "the out-of-memory killer ended rank 3",
    ),
    (
        raised(
            0,
            "RuntimeError",
            "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you "
            "tried to allocate 80000000000 bytes.",
        ),
        "the host ran out of memory",
    ),
    (
        raised(3, "RuntimeError", "DataLoader worker (pid 412) is killed by signal: Killed."),
        "a DataLoader worker of rank 3 was killed by SIGKILL, most likely because the host ran out of memory",
    ),
    (
        "slurmstepd: error: Job 551 exceeded memory limit (66012345 > 65011712), being killed\n"
        "slurmstepd: error: *** JOB 551 ON node-a CANCELLED AT 2026-01-02T03:04:05 ***\n",
        "a scheduler or supervisor ended the job because of its memory",
    ),
    (
        "=>> PBS: job killed: mem 67109888kb exceeded limit 67108864kb\n",
        "a scheduler or supervisor ended the job because of its memory",
    ),
    (
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\nExited with exit code 137.\n",
        "a scheduler or supervisor ended the job because of its memory",
    ),
    (
        "Reason: Evicted\nMessage: The node was low on resource: memory. Threshold quantity: 100Mi.\n",
        "a scheduler or supervisor ended the job because of its memory",
    ),
    (
        raised(1, "numpy.core._exceptions._ArrayMemoryError", "Unable to allocate 37.3 GiB for an array"),
        "the host ran out of memory",
    ),
    (
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
        + summary(1, -6),
        "the host ran out of memory",
    ),
    (
        'Nov 20 03:14:05 ws earlyoom[7]: sending SIGTERM to process 100 uid 1 "python": oom_score 800, VmRSS 1 MiB\n'
        + summary(1, -15),
        "the out-of-memory killer ended a process of the job",
    ),
]

test_it_is_named = names("DD017", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD017",
    [
        "slurmstepd: error: *** JOB 1 CANCELLED AT 2026 ***\n" + summary(1, -9),
    ],
)

test_what_training_survived_is_not = lets_survive("DD017", NAMED[2:4])


def test_slurm_names_the_rank():
    assert explained(NAMED[2][0])[0].ranks == (3,)


def test_what_a_script_says_of_a_limit_is_not_the_schedulers_word():
    text = "shard 7 exceeded memory limit, and is left out\n" + raised(1, "KeyError", "'x'")
    assert explained(text)[0].code == "DD304"
