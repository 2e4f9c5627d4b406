"""In a bare or editable checkout: the package ``ddpdoctor.checks`` is the folder ``checks/`` beside this package."""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parent.parent / "checks")]
