"""From a corpus to records on disk, with any number of processes."""
