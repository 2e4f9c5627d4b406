"""The manifest of a checkpoint, which may come from anywhere."""

import json
import re
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


def test_it_reads_what_it_writes():
    read = parse(GOOD)
    assert (read.step, read.world_size, dict(read.kinds)) == (20, 2, {"model": "replicated"})
    assert read.files["model.pt"].size == 100
    assert manifest.parse_manifest(manifest.manifest_text(read)) == read


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 2}, "its format is not 1"),
        ({"step": -1}, "step is not a count"),
        ({"step": True}, "step is not a count"),
        ({"step": 1.0}, "step is not a count"),
        ({"step": 1 << 70}, "step is not a count"),
        ({"world_size": 0}, "world_size is not a count"),
        ({"components": ["model"]}, "components is not an object"),
        ({"components": {"model": 1}}, "the kind of 'model' is not a text"),
        ({"components": {"optimizer": "replicated"}}, "it has no file for the component 'optimizer'"),
        ({"files": {"../model.pt": GOOD["files"]["model.pt"]}}, "'../model.pt' is no name of a file in it"),
        ({"files": {"/etc/passwd": GOOD["files"]["model.pt"]}}, "'/etc/passwd' is no name of a file in it"),
        ({"files": {"..": GOOD["files"]["model.pt"]}}, "'..' is no name of a file in it"),
        ({"files": {"a\n": GOOD["files"]["model.pt"]}}, r"'a\n' is no name of a file in it"),
        ({"files": {"model.pt": None}}, "model.pt is not an object"),
        ({"files": {"model.pt": {"bytes": 1, "sha256": "0" * 63}}}, "model.pt has no SHA-256"),
        ({"files": {"model.pt": {"bytes": "1", "sha256": "0" * 64}}}, "bytes is not a count"),
    ],
)
def test_what_is_wrong_is_said(change, reason):
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        parse({**GOOD, **change})


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b"9" * 10_000, b"NaN", b"[]", b"null"])
def test_what_is_no_manifest_at_all(text):
    with pytest.raises(ValueError, match=r"^(it is not JSON|the whole is not an object)$"):
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
def test_a_hostile_one_is_refused_in_one_line_or_stays_inside(text):
    """Whatever it says, no other exception comes, and no file outside the folder is named."""
    read, refused = None, ""
    try:
        read = manifest.parse_manifest(text)
    except ValueError as error:
        refused = str(error)
    assert len(refused) < 250
    assert refused.isprintable()
    if read is not None:
        assert all("/" not in name and name not in (".", "..") for name in read.files)
        assert all(0 <= file.size < 1 << 62 for file in read.files.values())
