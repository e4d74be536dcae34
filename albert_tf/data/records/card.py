"""Writes the data card, which describes a data set in JSON, Markdown and a plot."""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from albert_tf.errors import count_of, list_counts
from albert_tf.figure import draw_lengths
from albert_tf.storage import files
from albert_tf.storage.templates import templates

CARD_NAME = "dataset.json"
MARKDOWN_NAME = "dataset.md"
HISTOGRAM_NAME = "length_histogram.png"
_LISTED = 50  # inputs listed in the Markdown
# Counts that the card lists under their own names.
_TEXT_COUNTS = ("sentences", "characters", "tokens", "unknown_tokens")
_LOSSES = ("segments_split", "segments_cut", "segments_skipped", "tokens_skipped")
_LOSSES += ("pairs_without_another_document",)


def make_card(
    summary, config, corpus, duplicates, tokenizer, plan, mixture, settings, flags
) -> dict:
    """Returns the card of a data set.

    `corpus` was read to its end, `duplicates` saw all its documents, and `settings`
    determine the records. The card is ready for JSON; rates are fractions, not percent.
    """
    return {
        "format": 1,
        "form": config.masking,
        "max_seq_length": config.pairs.max_seq_length,
        "max_predictions_per_seq": config.mask.max_predictions_per_seq,
        "pair_policy": config.pairs.policy,
        "splits": {
            split: {
                "examples": sum(group.records for group in mixture.groups[split]),
                "documents": summary.splits[split]["documents"],
                "tokens": sum(group.tokens for group in mixture.groups[split]),
                "shards": [
                    {
                        "path": os.path.basename(shard.path),
                        "records": shard.end - shard.begin,
                        **({"source": shard.source} if shard.source else {}),
                    }
                    for shard in plan
                    if shard.split == split
                ],
            }
            for split in dict.fromkeys(shard.split for shard in plan)
        },
        **({"sources": mixture.sources} if mixture.sources else {}),
        "corpus": _corpus_section(summary, corpus, duplicates),
        "examples": _examples_section(summary, config),
        "masks": _masks_section(summary.counts, config),
        "tokenizer": {"sha256": tokenizer.sha256, "vocab_size": tokenizer.vocab_size},
        "inputs": [
            {
                "name": source.name,
                "format": source.format,
                "bytes": source.size,
                "sha256": corpus.sha256.get(source.name),
            }
            for source in corpus.sources
        ],
        "settings": settings,
        "flags": flags,
    }


def _corpus_section(summary, corpus, duplicates) -> dict:
    counts, longest = summary.counts, summary.longest
    return {
        "documents": counts["documents"],
        "documents_without_tokens": counts["documents_without_tokens"],
        "duplicate_documents": duplicates.num_duplicates,
        "duplicates_complete": duplicates.is_complete,
        **{name: counts[name] for name in _TEXT_COUNTS},
        "unknown_rate": _rate(counts["unknown_tokens"], counts["tokens"]),
        "longest_document": {
            "tokens": longest[0],
            "source": corpus.sources[longest[1]].name,
            "number": longest[2],
        },
        "skipped_or_cut": {k: v for k, v in sorted(corpus.counts.items()) if v},
    }


def _examples_section(summary, config) -> dict:
    counts, lengths = summary.counts, summary.lengths
    num_examples, num_tokens = counts["examples"], counts["output_tokens"]
    size = config.pairs.max_seq_length
    return {
        "count": num_examples,
        "tokens": num_tokens,
        "mean_length": _rate(num_tokens, num_examples),
        "full_length_rate": _rate(int(lengths[size]), num_examples),
        "padding_rate": 1 - _rate(num_tokens, num_examples * size),
        "label_1_rate": _rate(counts["labels_1"], num_examples),
        "with_random_document": counts["random_documents"],
        "truncated": counts["examples_truncated"],
        "tokens_truncated": counts["tokens_truncated"],
        "truncation_rate": _rate(
            counts["tokens_truncated"], counts["tokens"] * config.dupe_factor
        ),
        **{name: counts[name] for name in _LOSSES},
        "length_histogram": lengths.tolist(),
    }


def _masks_section(counts, config) -> dict:
    return {
        "from": "all records" if config.masking == "static" else "a sample",
        "tokens_seen": counts["mask_sample_tokens"],
        "mask_rate": _rate(counts["mask_sample_masked"], counts["mask_sample_tokens"]),
        "ngrams_by_words": {
            name.removeprefix("masked_ngrams_of_"): number
            for name, number in sorted(counts.items())
            if name.startswith("masked_ngrams_of_")
        },
    }


def write_card(folder: str, data_card: dict) -> None:
    """Writes the card in three forms; the JSON is last and marks a complete set."""
    lengths = np.array(data_card["examples"]["length_histogram"])
    for name, data in (
        (HISTOGRAM_NAME, draw_lengths(lengths)),
        (MARKDOWN_NAME, to_markdown(data_card).encode()),
        (CARD_NAME, files.to_json(data_card, indent=1).encode()),
    ):
        files.write_bytes(files.join(folder, name), data)


def tokenizer_options(data_card: dict) -> dict[str, bool]:
    """Returns the options of text normalization; empty if the card has none."""
    settings = data_card.get("settings")
    options = settings.get("tokenizer") if isinstance(settings, dict) else None
    return dict(options) if isinstance(options, dict) else {}


def shard_sizes(data_card: dict) -> dict[str, int]:
    """Returns the number of records by file name, for all splits of a card."""
    return {
        shard["path"]: shard["records"]
        for split in data_card.get("splits", {}).values()
        for shard in split["shards"]
    }


def shards_of_sources(data_card: dict) -> dict[str, list[str]]:
    """Returns, for each named source, the names of the files that hold its records."""
    by_source: dict[str, list[str]] = {}
    for split in data_card.get("splits", {}).values():
        for shard in split["shards"]:
            if "source" in shard:
                by_source.setdefault(shard["source"], []).append(shard["path"])
    return by_source


def content_digest(data_card: Mapping[str, Any]) -> str:
    """Returns a sha256 of the entries of a card that describe its content.

    Paths are excluded: a data set may be moved, or made again in another place.
    """
    inputs = [(x.get("bytes"), x.get("sha256")) for x in data_card.get("inputs", ())]
    settings = data_card.get("settings", {})
    names = ["form", "max_seq_length", "pair_policy", "examples", "tokenizer"]
    names += ["sources"] if "sources" in data_card else []
    content = {
        **{name: data_card.get(name) for name in names},
        "inputs": inputs,
        "config": settings.get("config") if isinstance(settings, dict) else None,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def summary_lines(data_card: dict) -> list[str]:
    """Returns a summary for the terminal, with one line per split."""
    lines = []
    for split, totals in data_card["splits"].items():
        rate = totals["tokens"] / max(totals["examples"], 1)
        lines.append(
            f"{split}: {count_of(totals['examples'], 'example')} of {rate:.0f} tokens "
            f"on average ({totals['tokens']:,}), "
            f"{count_of(len(totals['shards']), 'shard')}"
        )
    lines += [
        f"source {name}: {source['share_reached']:.1%} of the training tokens (wanted "
        f"{source['share_wanted']:.1%}), {source['passes']:.2f} passes over its text"
        for name, source in data_card.get("sources", {}).items()
    ]
    corpus = data_card["corpus"]
    lines.append(
        f"from {count_of(corpus['documents'], 'document')}, "
        f"{count_of(corpus['sentences'], 'sentence')}; "
        f"{corpus['unknown_rate']:.2%} unknown tokens, "
        f"{count_of(corpus['duplicate_documents'], 'document')} already seen"
    )
    if skipped := corpus["skipped_or_cut"]:
        lines.append(f"skipped or cut: {list_counts(skipped)}")
    return lines


def to_markdown(data_card: dict) -> str:
    """Returns the card as Markdown."""
    environment = templates("data/records")
    environment.filters |= {
        "basename": os.path.basename,
        "count_of": count_of,
        "list_counts": list_counts,
        "number": "{:,}".format,
    }
    template = environment.get_template("dataset.md.j2")
    options = tokenizer_options(data_card)
    return template.render(data_card, options=options, listed=_LISTED)


def _rate(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
