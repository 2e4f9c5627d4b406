"""Readers of what a job left behind: its output, and its debug files."""
