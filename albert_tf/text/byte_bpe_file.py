"""Reads, joins and trains the file of a byte-level BPE tokenizer, `tokenizer.json`.

Built on the Hugging Face tokenizers library, which is imported when first used.
"""

import json
from collections.abc import Iterable, Sequence

from albert_tf.errors import DataError, UsageError

# Accepted names of the special tokens: this package's, then RoBERTa's.
SPECIAL_NAMES = {
    "pad": ("<pad>",),
    "unk": ("<unk>",),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
# Options that RoBERTa leaves unset and `byte_bpe_graph` does not implement.
_PLAIN_MODEL = (
    "dropout",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "ignore_merges",
)


def train(sentences: Iterable[str], vocab_size: int, special: Sequence[str]) -> bytes:
    """Trains a byte-level BPE tokenizer.

    Args:
        sentences: Iterable of str. The training text.
        vocab_size: int. Number of tokens, special ones included.
        special: Sequence of str. Special tokens, which get the ids 0, 1, ...

    Returns:
        bytes. Content of a `tokenizer.json`.
    """
    tokenizers = _import_tokenizers()
    tokenizer = _byte_level(tokenizers, tokenizers.models.BPE())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    return tokenizer.to_str(pretty=True).encode("utf-8")


def _byte_level(tokenizers, model):
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def load(data: bytes, name: str):
    """Returns the library's tokenizer for a `tokenizer.json`.

    Special tokens that are written in a text are treated as plain text.

    Args:
        data: bytes. Content of the file.
        name: str. Name of the file, for error messages.

    Raises:
        DataError: If the bytes are not a byte-level BPE `tokenizer.json`.
    """
    tokenizers = _import_tokenizers()
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(data)
        kinds = json.loads(tokenizer.to_str())
    except Exception as e:
        reason = str(e).splitlines()[0][:120]
        raise DataError(f"{name}: not a tokenizer.json: {reason}") from None
    if kinds["model"]["type"] != "BPE" or '"ByteLevel"' not in json.dumps(kinds):
        raise DataError(
            f"{name}: expected byte-level BPE, received a model of type "
            f"{kinds['model']['type']}"
        )
    tokenizer.encode_special_tokens = True
    # It would add special tokens, which nobody asks for, and cut the space that belongs
    # to a token off its offsets.
    tokenizer.post_processor = None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def join_vocabulary(name: str, vocab: bytes, merges: str, merges_name) -> bytes:
    """Combines `vocab.json` and `merges.txt` into one `tokenizer.json`."""
    tokenizers = _import_tokenizers()
    try:
        tokens = json.loads(vocab)
        lines = [line.split(" ") for line in merges.splitlines() if line.strip()]
        pairs = [tuple(line) for line in lines if line[0] != "#version:"]
        model = tokenizers.models.BPE(vocab=tokens, merges=pairs)
    except Exception as e:
        reason = str(e).splitlines()[0][:120]
        raise DataError(
            f"{name} and {merges_name}: not a byte-level BPE vocabulary: {reason}"
        ) from None
    tokenizer = _byte_level(tokenizers, model)
    names = [name for choices in SPECIAL_NAMES.values() for name in choices]
    tokenizer.add_special_tokens([name for name in names if name in tokens])
    return tokenizer.to_str().encode("utf-8")


def graph_tables(tokenizer) -> dict:
    """Returns the arguments of `GraphByteBPE`.

    Raises:
        UsageError: If `GraphByteBPE` cannot produce the same ids as this tokenizer.
    """
    kinds = json.loads(tokenizer.to_str())
    model, words = kinds["model"], kinds["pre_tokenizer"] or {}
    unknown = [
        f"model.{name} {model[name]!r}"
        for name in _PLAIN_MODEL
        if model.get(name) not in (None, "", False)
    ]
    if kinds["normalizer"] is not None:
        unknown.append(f"normalizer {kinds['normalizer']['type']}")
    if words.get("type") != "ByteLevel":
        unknown.append(f"pre_tokenizer {words.get('type')}")
    plain = [
        token["content"] for token in kinds["added_tokens"] if not token["special"]
    ]
    if plain:
        unknown.append(f"added token {plain[0]!r}")
    vocabulary, alphabet = model["vocab"], byte_alphabet()
    missing = [
        octet for octet, symbol in enumerate(alphabet) if symbol not in vocabulary
    ]
    if missing:
        unknown.append(f"no token for byte {missing[0]}")
    pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    ranks = {left + right: rank for rank, (left, right) in enumerate(pairs)}
    # The graph merges all occurrences of a pair at once. That equals the library's
    # order as long as a token is produced before it becomes part of another.
    if len(ranks) < len(pairs) or any(
        ranks.get(part, -1) >= rank for rank, pair in enumerate(pairs) for part in pair
    ):
        unknown.append("merges that use results of later merges")
    if unknown:
        raise UsageError(
            "byte-level BPE in the graph requires a tokenizer.json like RoBERTa's or "
            f"train_tokenizer's, received one with {', '.join(unknown)}; tokenize with "
            "encode_batch instead and pass token ids to the model"
        )
    return {
        "byte_ids": [vocabulary[symbol] for symbol in alphabet],
        "merges": [
            (vocabulary[left], vocabulary[right], vocabulary[left + right])
            for left, right in pairs
        ],
        "add_prefix_space": words["add_prefix_space"],
        "use_regex": words.get("use_regex", True),
    }


def byte_alphabet() -> list[str]:
    """Returns the character that represents each byte in tokens (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [octet for octet in range(256) if octet not in printable]
    return [
        chr(octet if octet in printable else 256 + rest.index(octet))
        for octet in range(256)
    ]


def _import_tokenizers():
    try:
        import tokenizers
    except ImportError:
        raise UsageError(
            "byte-level BPE needs the tokenizers library (pip install albert-tf[bpe])"
        ) from None
    return tokenizers
