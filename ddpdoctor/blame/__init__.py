"""Who waits for whom in a job that stands still, and who is to blame. Plain data and pure functions."""
