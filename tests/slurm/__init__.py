"""Under Slurm: a real cluster of two nodes on this machine. ``python -m tests.slurm`` runs the cases, as root.

It needs Debian's packages: apt-get install --no-install-recommends slurm-wlm munge
"""
