from tests.support.logs import explained, leaves_alone, lets_survive, names, raised, summary

NAMED = [
    (
        "[  12.3] Out of memory: Killed process 4242 (python) total-vm:1kB\n" + summary(1, -9),
        "the out-of-memory killer ended a process of the job",
    ),
    (summary(1, -9), "rank 1 was killed by SIGKILL, mostly for want of host memory"),
    (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM "
        "Killed.\nsrun: error: node-a: task 3: Out Of Memory\n",
        "the out-of-memory killer ended a process of the job",
    ),
    (
        raised(
            0,
            "RuntimeError",
            "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you "
            "tried to allocate 80000000000 bytes.",
        ),
        "the host had no memory left to give",
    ),
    (
        raised(3, "RuntimeError", "DataLoader worker (pid 412) is killed by signal: Killed."),
        "a DataLoader worker was killed by SIGKILL, mostly for want of host memory",
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
