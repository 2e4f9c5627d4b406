"""A driver that knows of one GPU, and nothing of it."""
# ruff: noqa: N802 - the names are NVML's


class NVMLError(Exception):
    """What all other functions raise."""

    value = 999


def nvmlInit():
    pass


def nvmlShutdown():
    pass


def nvmlDeviceGetCount():
    return 1


def nvmlDeviceGetHandleByIndex(index):
    return f"gpu {index}"


def nvmlDeviceGetMemoryInfo(handle):
    raise NVMLError
