"""What every test shares: tests that need more than this machine gives are skipped with the reason."""

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("tests.support")
pytest_plugins = ("tests.support.fast",)

settings.register_profile("on a busy machine", deadline=None)
settings.load_profile("on a busy machine")

# As torchrun has it for its ranks: threads of OpenMP that share two cores with other tests mostly spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Hundreds of processes import ddpdoctor; each would compile it anew where Python may not keep what it compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell ignores SIGINT for what it starts in the background, nohup SIGHUP; commands of tests would inherit it.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs to mount, to unshare or to make network namespaces where that is not allowed."""
    needy = [item for item in items if item.get_closest_marker("root")]
    if needy and not _may_unshare():
        for item in needy:
            item.add_marker(pytest.mark.skip(reason="needs root with CAP_SYS_ADMIN"))


def _may_unshare() -> bool:
    try:
        command = ["unshare", "--uts", "--mount", "true"]
        return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
