"""The files of records: shards, their format and their card."""
