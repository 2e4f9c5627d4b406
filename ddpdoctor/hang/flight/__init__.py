"""PyTorch's flight recorder: its dumps read without trusting them, aligned, and the rank that is to blame."""
