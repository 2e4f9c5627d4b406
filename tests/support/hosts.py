"""Recorded hosts: ``tests/hosts/*.yaml``, each with what differs from the plain host of RecordedSystem."""

from pathlib import Path
from typing import Any

import yaml

from ddpdoctor.host import Host
from ddpdoctor.launch import Launch
from tests.support.recorded import RecordedSystem

HOSTS = Path(__file__).parent.parent / "hosts"


def recorded_host(name: str = "plain", launch: Launch | None = None, **changes: Any) -> Host:
    """The host recorded in ``tests/hosts/<name>.yaml``, with some keys of the recording replaced."""
    recording = yaml.safe_load((HOSTS / f"{name}.yaml").read_text()) or {}
    return Host(launch or Launch(), RecordedSystem({**recording, **changes}))
