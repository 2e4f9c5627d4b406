"""What can only be seen on an NVIDIA GPU; skipped where there is none."""
