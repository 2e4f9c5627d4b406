"""Under Ray: a real cluster of two hosts, which are namespaces on this machine, and programs that use TorchTrainer.

python -m tests.ray_cluster [CASE...]     # as root, with ray[train] installed
"""
