"""WordPiece tokenizer (as in BERT and ELECTRA).

Characters are replaced by a table, text is split into words at the spaces, and each
word is split into the longest tokens of the vocabulary. `wordpiece_graph` does the same
in the TensorFlow graph with the same table.

Legend: `V` vocabulary, `B` strings.
"""

import functools
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf.errors import DataError, UsageError, require
from albert_tf.storage import files
from albert_tf.text.added_tokens import ROLES, checked, complete
from albert_tf.text.normalization import CharacterTable, to_unicode
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.tokenizer_json import parse, template

MAX_WORD = 100  # a longer word is unknown
CONTINUES = "##"  # prefix of a token that continues a word
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_CACHED_WORDS = 1 << 16
_BATCH = 10_000  # words that the trainer reads at once


class WordPieceTokenizer(Tokenizer):
    r"""Turns text into WordPiece ids, the same as `BertTokenizer` of transformers.

    Control characters are dropped; the options decide whether accents and case are
    kept. Words end at white space, and each punctuation mark or ideograph is a word of
    its own. Special tokens written in the text are plain text.

    Args:
        model: Path of a `vocab.txt` (one token per line) or of a `tokenizer.json`, or
            the content of either.
        do_lower_case: bool or None. Whether to lower-case text. Default: the value in
            the `tokenizer.json`, else True.
        keep_accents: bool or None. Whether to keep accents (the opposite of
            `strip_accents` elsewhere). Default: the value in the `tokenizer.json`, else
            kept if and only if case is kept.
        tokenize_chinese_chars: bool or None. Whether each ideograph is a word. Default:
            the value in the `tokenizer.json`, else True.
        added_tokens: sequence of dict or None. Tokens that are found in text before it
            is tokenized. Default: as in the `tokenizer.json`.

    Attributes:
        vocab_size: int. V.
        pad_id, unk_id, cls_id, sep_id, mask_id: int. Read from the file.
        special_ids: list of int. Sorted.
        sha256: str. Hex digest of the `vocab.txt`.
        collapses_white_space: bool. False, since some characters at which `str.split`
            splits are dropped (U+001C to U+001F).

    Raises:
        DataError: If the file cannot be read, lacks a special token, or is a
            `tokenizer.json` whose steps are not BERT's.

    The library differs for several marks on one letter that are not removed as accents
    (`U+302E U+1D165`, `U+08D5 U+1CAB`), which it sorts; they occur in neither prose nor
    vocabularies.

    Example:
        >>> import albert_tf
        >>> tokens = "[PAD] [UNK] [CLS] [SEP] [MASK] film ##s .".split()
        >>> vocabulary = "\n".join(tokens).encode()  # what vocab.txt holds
        >>> tokenizer = albert_tf.WordPieceTokenizer(vocabulary)
        >>> ids = tokenizer.encode("Films.")
        >>> [tokenizer.id_to_token(i) for i in ids], tokenizer.decode(ids)
        (['film', '##s', '.'], 'films .')
    """

    file_name = "vocab.txt"
    options = (
        *("do_lower_case", "keep_accents", "tokenize_chinese_chars"),
        "added_tokens",
    )
    collapses_white_space = False
    _special_names = tuple(
        zip(SPECIAL_TOKENS, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), strict=True)
    )
    _separator = " "

    def __init__(
        self,
        model: str | os.PathLike | bytes,
        do_lower_case: bool | None = None,
        *,
        keep_accents: bool | None = None,
        tokenize_chinese_chars: bool | None = None,
        added_tokens: Sequence[Mapping[str, Any]] | None = None,
    ):
        name = self.file_name if isinstance(model, bytes) else os.fspath(model)
        data = model if isinstance(model, bytes) else files.read_bytes(model)
        stored: dict[str, Any] = {}
        if data.lstrip()[:1] == b"{":
            data, stored = _from_json(data, name)
        super().__init__(data)
        arguments = (do_lower_case, keep_accents, tokenize_chinese_chars, added_tokens)
        values = {
            k: v for k, v in zip(self.options, arguments, strict=True) if v is not None
        }
        values = (
            {"do_lower_case": True, "tokenize_chinese_chars": True} | stored | values
        )
        if do_lower_case is not None and keep_accents is None:
            values.pop("keep_accents", None)
        self.do_lower_case = values["do_lower_case"]
        self.keep_accents = values.get("keep_accents", not self.do_lower_case)
        self.tokenize_chinese_chars = values["tokenize_chinese_chars"]
        try:
            lines = data.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as e:
            raise DataError(f"{name}: not a vocab.txt: {e}") from None
        # Tokens have no white space; a line ends in \n or \r\n.
        tokens = [line.rstrip() for line in lines[: -1 if lines[-1] == "" else None]]
        _check_kind(tokens, name)
        added = values.get("added_tokens", ())
        self._set_vocabulary(_last_of_equals(tokens, name), (), name, added)
        # Tokens that the words of a text can be split into; added tokens are excluded.
        self._pieces = {t: i for t, i in self._ids.items() if i < self.model_size}
        self.longest = max(map(len, tokens))
        self._folds = _folds(
            self.do_lower_case, self.keep_accents, self.tokenize_chinese_chars
        )
        self._split_cached = functools.lru_cache(_CACHED_WORDS)(self._split_word)

    def with_options(self, **options: bool) -> "WordPieceTokenizer":
        config = self.get_config()
        if self.keep_accents != self.do_lower_case:  # by default
            del config["keep_accents"]
        return type(self)(self.model, **{**config, **options})

    def words(self, text: str | bytes) -> list[str]:
        """Returns the words of a text, before they are split into tokens."""
        return self.normalize(text).split()

    def normalize(self, text: str | bytes) -> str:
        """Returns the text with its words separated; repeating this changes nothing."""
        return to_unicode(text).translate(self._folds)

    def _encode_rows(self, texts: Iterable[str | bytes]) -> list[list[int]]:
        split = self._split
        return [[i for w in self.words(t) for i, _ in split(w)] for t in texts]

    def _encode_with_offsets(
        self, text: str
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ids, starts, ends = [], [], []
        for word, places in self._words_with_places(text):
            begin = 0
            for token_id, end in self._split(word):
                ids.append(token_id)
                starts.append(places[begin])
                ends.append(places[end - 1] + 1)
                begin = end
        return tuple(np.array(column, np.int32) for column in (ids, starts, ends))

    def _words_with_places(self, text: str) -> Iterator[tuple[str, list[int]]]:
        """Yields each word, and the index in the text of each of its characters."""
        word, places = "", []
        for place, char in enumerate(text + " "):
            for folded in self._folds[ord(char)]:
                if folded != " ":
                    word += folded
                    places.append(place)
                elif word:
                    yield word, places
                    word, places = "", []

    def _split(self, word: str) -> list[tuple[int, int]]:
        """Returns the id of each token of a word, and its end within the word."""
        if len(word) > MAX_WORD:  # the cache would keep words of any length
            return [(self.unk_id, len(word))]
        return self._split_cached(word)

    def _split_word(self, word: str) -> list[tuple[int, int]]:
        begin, tokens = 0, []
        while begin < len(word):
            prefix = CONTINUES if begin else ""
            for end in range(min(len(word), begin + self.longest), begin, -1):
                token_id = self._pieces.get(prefix + word[begin:end])
                if token_id is not None:
                    break
            else:
                break
            tokens.append((token_id, end))
            begin = end
        return tokens if begin == len(word) else [(self.unk_id, len(word))]

    def _decode(self, ids: list[int]) -> str:
        joined = " ".join(self._vocabulary[i] for i in ids)
        return joined.replace(f" {CONTINUES}", "")

    def id_to_text(self, token_id: int) -> str:
        return self.id_to_token(token_id).removeprefix(CONTINUES)

    @functools.cached_property
    def graph(self):
        from albert_tf.text.wordpiece_graph import GraphWordPiece

        return GraphWordPiece(self, CONTINUES, MAX_WORD)

    @property
    def graph_offsets(self):
        self._check_plain()
        return self.graph.tokenize_with_offsets

    def character_table(self) -> CharacterTable:
        """Returns the table of each character's replacement, for the graph."""
        return self._folds.table

    def _starts_word(self, token: str) -> bool:
        """Returns whether a token does not continue a word."""
        return not token.startswith(CONTINUES)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of a `tokenizer.json` of this tokenizer."""
        special = (
            {"content": self._vocabulary[i], "special": True, "id": i}
            for i in self.special_ids
        )
        added = {t["id"]: complete(t, t["id"]) for t in [*special, *self.added_tokens]}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [added[i] for i in sorted(added)],
            "normalizer": {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": self.tokenize_chinese_chars,
                "strip_accents": not self.keep_accents,
                "lowercase": self.do_lower_case,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": template(self),
            "decoder": {"type": "WordPiece", "prefix": CONTINUES, "cleanup": True},
            "model": {
                "type": "WordPiece",
                "unk_token": self.id_to_token(self.unk_id),
                "continuing_subword_prefix": CONTINUES,
                "max_input_chars_per_word": MAX_WORD,
                "vocab": dict(self._pieces),
            },
        }


class _Folds(dict):
    """Replacements of code points, computed by the library on first use."""

    def __init__(self, do_lower_case: bool, keep_accents: bool, chinese_chars: bool):
        import tokenizers

        super().__init__()
        self._normalizer = tokenizers.normalizers.BertNormalizer(
            handle_chinese_chars=chinese_chars,
            strip_accents=not keep_accents,
            lowercase=do_lower_case,
        )
        self._splitter = tokenizers.pre_tokenizers.BertPreTokenizer()

    def __missing__(self, code: int) -> str:
        folded = self[code] = self.fold(chr(code))
        return folded

    def fold(self, char: str) -> str:
        """Returns the replacement of a character; words have spaces around them."""
        # Between letters, the splits show which characters are words.
        text = f"x{self._normalizer.normalize_str(char)}x"
        return self._words(text)[1:-1]

    @functools.cached_property
    def table(self) -> CharacterTable:
        """The replacements of all characters; building it takes some seconds."""
        return CharacterTable(self._every())

    def _every(self) -> Iterator[tuple[str, str]]:
        """Yields each character that has a replacement, and this."""
        for first in range(0, sys.maxunicode + 1, 4096):
            codes = {*range(first, first + 4096)} - {*range(0xD800, 0xE000), ord("!")}
            chars = [chr(c) for c in sorted(codes)]
            if self.fold(together := "".join(chars)) == together:
                continue  # most planes are unassigned
            # Between marks that nothing else becomes: one call for all.
            text = self._normalizer.normalize_str("!".join(f"x{c}x" for c in chars))
            words = self._words(text).split(" ! ")
            for char, found in zip(chars, words, strict=True):
                if char != (folded := found[1:-1]):
                    yield char, folded
        yield "!", self.fold("!")

    def _words(self, text: str) -> str:
        words = self._splitter.pre_tokenize_str(text)
        return " ".join(word for word, _ in words)


_folds = functools.lru_cache(_Folds)


def _check_kind(tokens: list[str], name: str) -> None:
    """Raises `DataError` if the tokens look like SentencePiece or BPE pieces."""
    # There must not be more such pieces than tokens with `##`.
    others = [t for t in tokens if t[1:] and (t[0] in "▁Ġ" or t[-1] == "▁")]
    rule = f"{name}: is the list of pieces of another tokenizer than WordPiece; give "
    rule += "its spiece.model or tokenizer.json"
    own = sum(token.startswith(CONTINUES) for token in tokens)
    require(len(others) <= own, rule, *others[:1], error=DataError)


def _last_of_equals(tokens: list[str], name: str) -> list[str]:
    """Renames all but the last of equal tokens; other libraries use the last one."""
    last = {token: i for i, token in enumerate(tokens)}
    repeated = [i for i, token in enumerate(tokens) if last[token] != i]
    if repeated:
        line, again = repeated[0] + 1, last[tokens[repeated[0]]] + 1
        logging.warning(
            "%s: %d tokens are never used, because a later line repeats them, such as "
            "%r in lines %d and %d",
            *(name, len(repeated), tokens[line - 1], line, again),
        )
    return [t if last[t] == i else f"[repeated{i}]" for i, t in enumerate(tokens)]


def _from_json(data: bytes, name: str) -> tuple[bytes, dict[str, Any]]:
    """Returns the `vocab.txt` and the options stored in a `tokenizer.json`."""
    content = parse(data, name)
    try:
        model, steps = content["model"], content["normalizer"]
        tokens, added = {**model["vocab"]}, content["added_tokens"]
        tokens |= {t["content"]: t["id"] for t in added if t["content"] in ROLES}
        kinds = (model["type"], steps["type"], content["pre_tokenizer"]["type"])
        names = sorted(tokens, key=tokens.__getitem__)
        odd = [t for t in names if "\n" in t or t != t.rstrip()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DataError(f"{name}: not the tokenizer.json of a WordPiece") from None
    actual = {
        "steps": kinds,
        "continuing_subword_prefix": model.get("continuing_subword_prefix"),
        "max_input_chars_per_word": model.get("max_input_chars_per_word"),
        "clean_text": steps.get("clean_text"),
        "unk_token": model.get("unk_token"),
    }
    expected = {
        "steps": ("WordPiece", "BertNormalizer", "BertPreTokenizer"),
        "continuing_subword_prefix": CONTINUES,
        "max_input_chars_per_word": MAX_WORD,
        "clean_text": True,
        "unk_token": "[UNK]" if "[UNK]" in tokens else "<unk>",
    }
    for key, value in expected.items():
        rule = f"{name}: {key} of a WordPiece must be {value}"
        require(actual[key] == value, rule, actual[key], error=DataError)
    rule = f"{name}: the ids of its {len(names)} tokens must be 0, 1, ..."
    require([tokens[t] for t in names] == [*range(len(names))], rule, error=DataError)
    rule = f"{name}: no token of a WordPiece may have a line end or a space at its end"
    require(not odd, rule, *odd[:1], error=DataError)
    options = {
        "do_lower_case": steps.get("lowercase"),
        "keep_accents": None,
        "tokenize_chinese_chars": steps.get("handle_chinese_chars"),
    }
    if steps.get("strip_accents") is not None:
        options["keep_accents"] = not steps["strip_accents"]
    options = {key: bool(v) for key, v in options.items() if v is not None}
    options["added_tokens"] = checked(added, name)
    return "".join(f"{token}\n" for token in names).encode("utf-8"), options


def train(
    sentences: Iterable[str], vocab_size: int, coverage: float, **options: bool
) -> bytes:
    """Trains a WordPiece vocabulary and returns its `vocab.txt`.

    `coverage` is the fraction of the characters in the text that get a token; words
    with another character are left out. `options` are `WordPieceTokenizer`'s arguments.
    Raises `UsageError` if `vocab_size` cannot hold all characters.
    """
    import tokenizers

    special = "".join(f"{token}\n" for token in SPECIAL_TOKENS).encode()
    words = WordPieceTokenizer(special, **options).words
    every = (word for sentence in sentences for word in words(sentence))
    counts = Counter(word for word in every if len(word) <= MAX_WORD)
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        characters.update({char: count * word.count(char) for char in set(word)})
    rest, alphabet = coverage * characters.total(), set()
    for char in sorted(characters, key=lambda char: (-characters[char], char)):
        if rest > 0:
            alphabet.add(char)
        rest -= characters[char]
    # The library would order an alphabet of its own differently in each process.
    first = [*SPECIAL_TOKENS, *sorted(alphabet)]
    first += [CONTINUES + char for char in sorted(alphabet)]
    message = (
        f"vocab_size must be at least {len(first)}, the number of special tokens and "
        f"of the text's characters, at the start of words and in them, at "
        f"character_coverage {coverage}"
    )
    require(len(first) <= vocab_size, message, vocab_size, error=UsageError)
    library = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=first, show_progress=False
    )
    usable = sorted(word for word in counts if alphabet.issuperset(word))
    repeated = (
        " ".join([word] * min(_BATCH, counts[word] - done))
        for word in usable
        for done in range(0, counts[word], _BATCH)
    )
    library.train_from_iterator(repeated, trainer)
    vocabulary = library.get_vocab()
    names = sorted(vocabulary, key=vocabulary.__getitem__)
    return "".join(f"{token}\n" for token in names).encode("utf-8")
