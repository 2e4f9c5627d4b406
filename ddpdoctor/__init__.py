"""ddpdoctor: a diagnostic toolkit for PyTorch DistributedDataParallel."""

__version__ = "0.2.0"
