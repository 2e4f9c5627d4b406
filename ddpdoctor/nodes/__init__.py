"""The hosts of a job of several nodes: the commands on them meet, compare themselves, and end in one report."""
