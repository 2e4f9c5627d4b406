"""On PYTHONPATH of a host: it has NVIDIA's driver, whose library is the pynvml of this folder."""

import ctypes

_load = ctypes.CDLL
ctypes.CDLL = lambda name, *rest, **options: _load(
    None if name == "libnvidia-ml.so.1" else name, *rest, **options
)
