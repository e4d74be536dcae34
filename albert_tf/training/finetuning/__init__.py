"""One fine-tuning run, from its settings to its folder."""
