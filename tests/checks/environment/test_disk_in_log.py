from tests.support.logs import explained, leaves_alone, lets_survive, names, raised

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        raised(0, "OSError", "[Errno 28] No space left on device: '/out/model.pt'"),
        "a file could not be written to its end: the disk or the quota is full",
    ),
    (
        raised(
            0,
            "RuntimeError",
            "[enforce fail at inline_container.cc:815] . PytorchStreamWriter failed writing file data/12: file "
            "write failed",
        ),
        "a file could not be written to its end: the disk or the quota is full",
    ),
    (
        raised(0, "OSError", "[Errno 122] Disk quota exceeded"),
        "a file could not be written to its end: the disk or the quota is full",
    ),
    (
        raised(0, "RuntimeError", "Parent directory /out/run1 does not exist."),
        "a file could not be written: Parent directory /out/run1 does not exist",
    ),
    (
        raised(0, "OSError", "[Errno 30] Read-only file system: '/out'"),
        "a file could not be written: Read-only file system",
    ),
    (
        "Reason: Evicted\nMessage: Pod ephemeral local storage usage exceeds the total limit of containers 50Gi.\n",
        "Kubernetes evicted the pod, since its node ran out of ephemeral storage",
    ),
]

test_it_is_named = names("DD019", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD019",
    [
        NCCL + "x.cc:1 NCCL WARN Call to posix_fallocate failed : No space left on device\n",
    ],
)

test_what_training_survived_is_not = lets_survive("DD019", NAMED[:2])


def test_a_mount_that_is_read_only_needs_no_folder():
    read_only, missing = (explained(text)[0].fix for text, _ in (NAMED[4], NAMED[3]))
    assert "findmnt" in read_only
    assert "mkdir" in missing
