from ddpdoctor.host import System
from ddpdoctor.host.torch_build import TorchBuild, read_torch_build
from tests.support.hosts import recorded_host

CPU = "from typing import Optional\n__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
CUDA = "__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
MACROS = '  {"USE_NCCL", "ON"}, \\\n  {"USE_MPI", "OFF"}, \\\n  {"USE_GLOO", "ON"}, \\\n'


def build(version_file: str, **files: str) -> TorchBuild | None:
    below = {"/t/version.py": version_file, **{f"/t/{path}": text for path, text in files.items()}}
    return recorded_host(packages={"torch": "/t"}, files=below).torch


def test_a_cpu_build():
    assert build(CPU) == TorchBuild("2.13.0+cpu", None, frozenset({"gloo"}))


def test_a_cuda_build_has_nccl_even_without_headers():
    assert build(CUDA) == TorchBuild("2.13.0+cu130", "13.0", frozenset({"gloo", "nccl"}))


def test_the_headers_say_what_is_compiled_in():
    found = build(CUDA, **{"include/caffe2/core/macros.h": MACROS.replace('NCCL", "ON', 'NCCL", "OFF')})
    assert found is not None
    assert found.backends == {"gloo"}


def test_the_targets_file_adds_ucc():
    targets = {"share/cmake/Caffe2/Caffe2Targets.cmake": 'DEFINITIONS "USE_C10D_GLOO;USE_C10D_UCC;USE_RPC"'}
    found = build(CPU, **targets)
    assert found is not None
    assert found.backends == {"gloo", "ucc"}


def test_no_torch():
    assert recorded_host(installed={}).torch is None


def test_the_live_torch_is_read_without_importing_it():
    found = read_torch_build(System())
    assert found is not None
    assert "gloo" in found.backends
