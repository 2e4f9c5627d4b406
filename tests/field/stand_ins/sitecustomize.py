"""Stands on PYTHONPATH of a script of the field study: packages that do nothing, data sets of random content.

A package that FIELD_STUBS names is there, with every module and attribute that is asked for. torchvision takes files of
random data for those that it would download: they have the names, and not the checksums.
"""

import importlib.abc
import importlib.machinery
import os
import sys
from unittest.mock import MagicMock

STUBS = tuple(filter(None, os.environ.get("FIELD_STUBS", "").split(",")))


class Stub(MagicMock):
    """A module; its attributes are stubs, too."""

    __path__ = ()
    __file__ = "stub.py"


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds packages that are replaced, and the modules below them."""

    def find_spec(self, name, path=None, target=None):
        return (
            importlib.machinery.ModuleSpec(name, self, is_package=True)
            if name.split(".")[0] in STUBS
            else None
        )

    def create_module(self, spec):
        return Stub(name=spec.name)

    def exec_module(self, module):
        pass


class Downloads(importlib.abc.MetaPathFinder):
    """Has torchvision take a file whatever its checksum, once its utilities are imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "torchvision.datasets.utils":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def and_change(module):
            execute(module)
            module.check_md5 = lambda *_, **__: True

        spec.loader.exec_module = and_change
        return spec


sys.meta_path[:0] = [Stubs(), Downloads()]
