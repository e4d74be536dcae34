"""Turns strings into model inputs: normalization, tokenizers, pairs, truncation."""
