"""Writes numbers for people: counts with their noun, and lists of counts."""

from collections.abc import Mapping


def count_of(number: int, noun: str) -> str:
    """Returns "1 example", "2,000 examples"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def list_counts(counts: Mapping[str, int]) -> str:
    """Returns "short 1,200, long 3", or "none"."""
    return ", ".join(f"{name} {number:,}" for name, number in counts.items()) or "none"
