"""How well this machine trains with more ranks: timed by ranks of our own, judged by pure functions.

``measure`` and what it calls run in the ranks of a live group; the command does not import torch.
"""
