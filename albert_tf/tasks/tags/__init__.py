"""Tagging of words: CoNLL-2003, WNUT17 and own files."""
