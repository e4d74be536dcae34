"""One fine-tuning run, from its settings to a folder."""
