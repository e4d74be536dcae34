"""Models as files that other programs run."""
