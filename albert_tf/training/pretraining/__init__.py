"""One pretraining run, from its settings to a folder."""
