"""The manifest of a checkpoint, which may come from anywhere."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sample_trainer.bundled import module

manifest = module("checkpoint_files")

GOOD: dict[str, Any] = {
    "format": 1,
    "step": 20,
    "world_size": 2,
    "components": {"model": "replicated"},
    "files": {"model.pt": {"bytes": 100, "sha256": "0" * 64}},
}


def parse(told: Any) -> Any:
    return manifest.parse_manifest(json.dumps(told).encode())


def test_it_is_read():
    read = parse(GOOD)
    assert (read.step, read.world_size, dict(read.components)) == (20, 2, {"model": "replicated"})
    assert read.files["model.pt"].bytes == 100


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"step": -1},
        {"step": True},
        {"step": 1.0},
        {"step": 1 << 70},
        {"world_size": 0},
        {"components": ["model"]},
        {"components": {"model": 1}},
        {"components": {"optimizer": "replicated"}},
        {"files": {"../model.pt": GOOD["files"]["model.pt"]}},
        {"files": {"/etc/passwd": GOOD["files"]["model.pt"]}},
        {"files": {"..": GOOD["files"]["model.pt"]}},
        {"files": {"a\n": GOOD["files"]["model.pt"]}},
        {"files": {"model.pt": None}},
        {"files": {"model.pt": {"bytes": 1, "sha256": "0" * 63}}},
        {"files": {"model.pt": {"bytes": "1", "sha256": "0" * 64}}},
    ],
)
def test_what_is_wrong_is_refused(change):
    with pytest.raises(ValueError, match="not a manifest"):
        parse({**GOOD, **change})


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b"9" * 10_000, b"NaN", b"[]", b"null"])
def test_what_is_no_manifest_at_all(text):
    with pytest.raises(ValueError, match="not a manifest"):
        manifest.parse_manifest(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from([*GOOD, "model.pt", "bytes", "sha256"]) | st.text(max_size=10)


@given(
    st.binary(max_size=200)
    | st.dictionaries(keys, values).map(lambda one: json.dumps({**GOOD, **one}).encode())
)
def test_a_hostile_one_is_refused_or_stays_inside(text):
    """Whatever it says, no other exception comes, and no file outside the folder is named."""
    read = None
    with suppress(ValueError):
        read = manifest.parse_manifest(text)
    if read is not None:
        assert all("/" not in name and name not in (".", "..") for name in read.files)
        assert all(0 <= file.bytes < 1 << 62 for file in read.files.values())
