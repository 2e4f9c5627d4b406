"""A job while it runs: how far each rank is and how fast, on a screen, as lines, and as metrics."""
