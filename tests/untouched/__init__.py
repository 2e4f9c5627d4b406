"""Scripts that write in every way: after a check, all files are as they were before it."""
