"""ddpdoctor: a diagnostic toolkit for PyTorch DistributedDataParallel.

``ddpdoctor.check(...)``, ``ddpdoctor.hang(...)`` and ``ddpdoctor.explain(...)`` return a report; see
:mod:`ddpdoctor.api`. They are imported when they are first asked for.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpdoctor.api import Report as Report
    from ddpdoctor.api import UsageError as UsageError
    from ddpdoctor.api import check as check
    from ddpdoctor.api import explain as explain
    from ddpdoctor.api import hang as hang

__version__ = "1.0.0"


class _FromApi:
    """A name of :mod:`ddpdoctor.api`. It stands before the submodule of the same name, which the import system sets."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, package: ModuleType | None, owner: type) -> Any:
        from ddpdoctor import api

        return getattr(api, self._name)

    def __set__(self, package: ModuleType, value: object) -> None:
        """Leave it as it is: ``from ddpdoctor.check import Check`` finds its module without."""


class _Package(ModuleType):
    Report, UsageError = _FromApi(), _FromApi()
    check, explain, hang = _FromApi(), _FromApi(), _FromApi()


sys.modules[__name__].__class__ = _Package
