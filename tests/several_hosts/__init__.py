"""Jobs on several hosts, which are namespaces on this machine: faults that only show between hosts.

python -m tests.several_hosts              # all cases, some minutes; needs root
python -m tests.several_hosts lost cut     # these alone
python -m tests.slurm                      # under Slurm
"""
