"""From strings to model inputs: normalization, tokenizers, pairs and truncation."""
