"""Validates each by a library that has the schemas.

python -m tests.manifests     # needs kubernetes-validate and kubeflow-trainer-api
"""

import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import yaml

from tests.support.command import ROOT

NEEDS = ("kubernetes_validate", "kubeflow_trainer_api")
OLDEST = "1.27"
"""The version of Kubernetes for which each has to be right, beside the newest that the library knows."""
_FENCE = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_OF_KUBEFLOW = "trainer.kubeflow.org/v1alpha1"


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each, with its kind and file."""
    launch = ROOT / "sample_trainer" / "launch" / "kubernetes.yaml"
    texts = [(launch, launch.read_text())]
    texts += [
        (page, text) for page in sorted(ROOT.glob("docs/*.md")) for text in _FENCE.findall(page.read_text())
    ]
    for file, text in texts:
        for value in yaml.safe_load_all(text):
            if isinstance(value, dict) and "apiVersion" in value:
                yield f"{value['kind']} in {file.relative_to(ROOT)}", value


def complaint(manifest: dict[str, Any]) -> str:
    """What its schema says against it; empty where that is nothing."""
    try:
        if manifest["apiVersion"] == _OF_KUBEFLOW:
            return _left_out(manifest)
        import kubernetes_validate

        for version in (OLDEST, kubernetes_validate.latest_version()):
            kubernetes_validate.validate(manifest, version, strict=True)
    except ValueError as wrong:
        return str(wrong)
    except kubernetes_validate.ValidationError as wrong:
        return f"{'.'.join(map(str, wrong.path))}: {wrong.message}"
    return ""


def _left_out(manifest: dict[str, Any]) -> str:
    """The fields that Kubeflow's own model of the kind does not have: it passes over them."""
    from kubeflow_trainer_api import models

    known = models.TrainerV1alpha1TrainJob.from_dict(manifest)
    return (
        "" if known and known.to_dict() == manifest else f"Kubeflow reads it as {known and known.to_dict()}"
    )


def with_misspelled(manifest: dict[str, Any]) -> dict[str, Any]:
    """A copy with a field of its specification under another name."""
    name, value = next(iter(manifest["spec"].items()))
    rest = {other: manifest["spec"][other] for other in manifest["spec"] if other != name}
    return {**manifest, "spec": {f"{name}x": value, **rest}}


def main() -> int:
    """Validate all; the exit status."""
    if missing := [name for name in NEEDS if find_spec(name) is None]:
        print(f"needs {' '.join(missing).replace('_', '-')} (pip install)")
        return 2
    wrong = 0
    for name, manifest in manifests():
        problem = complaint(manifest)
        if not problem and not complaint(with_misspelled(manifest)):
            problem = "a misspelled field is not noticed"
        print(f"{name:55} {problem or 'valid'}")
        wrong += bool(problem)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
