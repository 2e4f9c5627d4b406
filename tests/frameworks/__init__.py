"""Scripts of frameworks on top of DistributedDataParallel: right ones are silent, a typical mistake of each is named.

A script's first word is its framework. What is to be found stands in comments (tests/support/expectations.py), and
``fix:`` behind it says which words of the framework the fix must have. Each runs
through the whole command, as users run it.

    python -m tests.frameworks                 # in an environment of its own, which is made once and kept
"""
