"""One report with everything in it that a format has to say."""

from ddpdoctor.model import (
    Change,
    CheckResult,
    Confidence,
    Evidence,
    Family,
    Finding,
    Level,
    Outcome,
    Patch,
    Report,
    Where,
)

UNUSED = Finding(
    "DD904",
    Level.FAIL,
    "rank 2 did not produce gradients for 2 of 148 parameters",
    why="DDP averages every gradient across all ranks. Rank 2 did not use head.aux in this step, so the other "
    "three ranks wait for it, up to the 1800 s timeout.",
    fix="use head.aux on every rank in every step; or, if skipping it is intended:\n"
    "   DistributedDataParallel(model, find_unused_parameters=True)",
    ranks=(2,),
    where=Where("src/größe 1,2.py", 88, "train_step"),
    evidence=(
        Evidence("gradients 148 of 148", (0, 1)),
        Evidence("gradients 148 of 148", (3,)),
        Evidence("gradients 146 of 148, missing head.aux.weight and head.aux.bias", (2,)),
    ),
)
OVERLAP = Finding(
    "DD905",
    Level.WARN,
    "ranks 0 and 1 read 25 % of the same samples",
    why="The samplers' seeds differ, so each rank cuts its shard out of another order: some samples are "
    "trained on twice in an epoch & others never.",
    fix="DistributedSampler(dataset, seed=SAME_ON_EVERY_RANK)",
    ranks=(0, 1),
    where=Where("/opt/lib/data.py"),
    evidence=(Evidence("<1024 of 4096> indices are equal::::%"),),
    confidence=Confidence.LIKELY,
    patch=Patch(
        "one seed for the samplers",
        "--- a/src/data.py\n+++ b/src/data.py\n@@ -7,1 +7,2 @@\n-sampler = DistributedSampler(data, seed=rank)\n"
        "+sampler = DistributedSampler(data)\n+print(100 % 7)\n",
        verified=True,
        outcome="DD905 is gone, nothing new",
        changes=(Change("src/data.py", 7, 1, "sampler = DistributedSampler(data)\nprint(100 % 7)\n"),),
    ),
)
EPHEMERAL = Finding(
    "DD902",
    Level.INFO,
    "port 40000 lies inside the ephemeral range 32768-60999",
    why="The kernel gives these ports to outgoing connections.",
    fix="torchrun --master-port 29501 ...",
    evidence=(Evidence("free now", tuple(range(0, 128, 2))), Evidence("not asked", (1,))),
)
LINES = (
    CheckResult(
        "DD901",
        "launch-variables",
        Family.LAUNCH,
        Outcome.PASS,
        "torchrun's variables agree on every rank",
        seconds=0.12,
        evidence=(
            Evidence("WORLD_SIZE '4'", (0, 1)),
            Evidence("WORLD_SIZE '4'", (2, 3)),
            Evidence("store 127.0.0.1"),
        ),
    ),
    CheckResult("DD902", "port-in-use", Family.LAUNCH, Outcome.PASS, EPHEMERAL.headline),
    CheckResult("DD904", "parameters-unused", Family.GRADIENTS, Outcome.FAIL, UNUSED.headline, seconds=3.14),
    CheckResult("DD905", "shards-overlap", Family.DATA, Outcome.WARN, OVERLAP.headline, seconds=1.2),
    CheckResult(
        "DD906",
        "straggler",
        Family.PERFORMANCE,
        Outcome.ERROR,
        "the check did not complete: KeyError: 'step' (our bug; see run.log)",
        reason="KeyError: 'step'",
        seconds=0.2,
    ),
    CheckResult(
        "DD907",
        "more-ranks-than-gpus",
        Family.GPU,
        Outcome.SKIP,
        "one GPU for each rank: this machine has no GPU that its driver or the CUDA build of torch can see",
        reason="this machine has no GPU that its driver or the CUDA build of torch can see",
    ),
)
EVERYTHING = Report(
    version="0.1.0",
    command=("check", "--nproc", "4", "--checkpoint-dir", "/data/mine & yours"),
    exit_status=1,
    seconds=4.61,
    checks=LINES,
    findings=(UNUSED, OVERLAP, EPHEMERAL),
    run={
        "nproc": 4,
        "nnodes": 1,
        "backend": "gloo",
        "torch": "2.13.0+cpu",
        "folder": "/tmp/ddpdoctor-x",
        "script": "train.py",
    },
    notes=("no NCCL_DEBUG output: the backend is gloo, which has none", "日本語 in a note"),
)
HEALTHY = Report(
    version="0.1.0",
    command=("check",),
    exit_status=0,
    seconds=1.3,
    checks=LINES[:1],
    run={"nproc": 1, "nnodes": 1, "backend": "gloo", "torch": "2.13.0", "folder": None},
)
NOTHING = Report(version="0.1.0", command=("check", "--select", "DD999"), exit_status=0, seconds=0.0)
