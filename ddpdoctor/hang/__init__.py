"""Who waits for whom: stacks of the ranks, merged."""
