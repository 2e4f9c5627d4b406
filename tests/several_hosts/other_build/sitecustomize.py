"""On PYTHONPATH of a host: its torch is another build."""

import sys
from importlib.machinery import PathFinder, SourceFileLoader


class OtherBuild(SourceFileLoader):
    """Of torch/version.py."""

    def exec_module(self, module):
        super().exec_module(module)
        module.__version__ = "2.13.0+cu126"


class Finder:
    """Of that file."""

    @staticmethod
    def find_spec(name, path, target=None):
        spec = PathFinder.find_spec(name, path, target) if name == "torch.version" else None
        if spec is not None:
            spec.loader = OtherBuild(spec.loader.name, spec.loader.path)
        return spec


sys.meta_path.insert(0, Finder)
