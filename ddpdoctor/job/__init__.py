"""Jobs: somebody's script, started and stopped again."""
