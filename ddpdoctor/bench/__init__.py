"""How well this machine trains with more ranks: timed by ranks of our own, judged by pure functions.

``engine`` and ``worker`` run in processes that import torch; the command does not.
"""
