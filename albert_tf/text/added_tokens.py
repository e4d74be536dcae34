"""Tokens that were added to a finished vocabulary, and the files that name them.

Text is divided at them before it is tokenized, as the tokenizers library does it: first
at those that are searched for in the text as it is; then what is between them, once
normalized, at all others. Of tokens that begin at one place the longest is taken. Each
part is then tokenized like a text.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from albert_tf.errors import DataError, require
from albert_tf.storage import files

# Their text is never a token.
ROLES = {
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
}
_FLAGS = ("single_word", "lstrip", "rstrip", "special")
# By the file of a vocabulary: classes of transformers that take the same steps.
_CLASSES = {
    "spiece.model": "Albert",
    "vocab.txt": "Bert Electra DistilBert MobileBert ConvBert LayoutLM SqueezeBert "
    "MPNet Funnel Lxmert",
    "tokenizer.json": "Roberta GPT2 Longformer Bart LED",
}
_ANY_CLASS = {"", "TokenizersBackend", "PreTrainedTokenizer"}
# Settings of steps that are not reproduced, and values that leave these steps out.
_NEUTRAL = {
    "auto_map": (),
    "clean_text": (True,),
    "do_basic_tokenize": (True,),
    "never_split": (),
    "remove_space": (True,),
    "sp_model_kwargs": (),
    "split_special_tokens": (False,),
    "subword_tokenizer_type": ("wordpiece",),
    "word_tokenizer_type": ("basic",),
}


class Stage(NamedTuple):
    """Added tokens that are searched for at once.

    Attributes:
        is_normalized: bool. Whether the text is normalized before.
        tokens: dict. Their entries in a `tokenizer.json`, by what they are in the text.
        pattern: Pattern. Matches them.
    """

    is_normalized: bool
    tokens: dict[str, Mapping[str, Any]]
    pattern: re.Pattern


class AddedTokens:
    """Finds added tokens in text.

    Args:
        tokens: iterable of dict. Entries of `added_tokens` in a `tokenizer.json`.
        normalize: callable. Normalizes a text.

    Attributes:
        stages: list of `Stage`.

    Raises:
        DataError: If a token cannot be found in the way that it asks for.
    """

    def __init__(
        self, tokens: Iterable[Mapping[str, Any]], normalize: Callable[[str], str]
    ):
        self._normalize, self.stages = normalize, []
        for is_normalized in (False, True):
            stage: dict[str, Mapping[str, Any]] = {}
            for token in tokens:
                if token["normalized"] is not is_normalized:
                    continue
                text = (
                    normalize(token["content"]) if is_normalized else token["content"]
                )
                rule = f"added token {token['content']!r}: single_word must be false, "
                rule += "and normalization must leave text that no other token has"
                fits = text.strip() and text not in stage and not token["single_word"]
                require(fits, rule, text, error=DataError)
                stage[text] = token
            # The first alternative that fits is taken.
            texts = sorted(stage, key=len, reverse=True)
            pattern = re.compile(f"({'|'.join(map(re.escape, texts))})")
            if stage:
                self.stages.append(Stage(is_normalized, stage, pattern))

    def split(self, text: str, stage: int = 0) -> list[str | int]:
        """Returns the ids of the added tokens in a text, and the texts around them."""
        if stage == len(self.stages):
            return [text]
        is_normalized, tokens, pattern = self.stages[stage]
        parts = pattern.split(self._normalize(text) if is_normalized else text)
        result: list[str | int] = []
        for k, part in enumerate(parts):
            result += [tokens[part]["id"]] if k % 2 else self.split(part, stage + 1)
        return result


def complete(token: Mapping[str, Any], token_id: int) -> dict[str, Any]:
    """Returns the entry of an added token with all keys."""
    entry: dict[str, Any] = {"id": token_id, "content": token["content"]}
    entry |= {flag: bool(token.get(flag)) for flag in _FLAGS}
    return {**entry, "normalized": bool(token.get("normalized", not entry["special"]))}


def checked(entries: Iterable[Any], source: str) -> list[dict[str, Any]]:
    """Returns the entries of added tokens, each once, without those of roles.

    Args:
        entries: Iterable. What a file holds. The first entry of a token says how it is
            searched for.
        source: str. Name of the file, for the error.

    Raises:
        DataError: If one is no entry.
    """
    result: dict[str, dict[str, Any]] = {}
    for entry in entries:
        token = entry.get("content") if isinstance(entry, dict) else None
        fits = isinstance(token, str) and token and type(entry.get("id", 0)) is int
        require(fits, f"{source}: its added tokens cannot be read", error=DataError)
        if token not in ROLES:
            result.setdefault(token, entry)
    return list(result.values())


def read(folder: str) -> list[dict[str, Any]]:
    """Returns the added tokens that transformers' files in a folder name.

    A token that has no id there is in the vocabulary or follows it.

    Raises:
        DataError: If a file is damaged.
    """
    content, config, plain, roles = (
        _object(files.join(folder, f"{name}.json"))
        for name in (
            "tokenizer",
            "tokenizer_config",
            "added_tokens",
            "special_tokens_map",
        )
    )
    decoder = config.get("added_tokens_decoder") or {}
    try:
        named = []
        for key, value in [*config.items(), *roles.items()]:
            if key in ("additional_special_tokens", "extra_special_tokens"):
                named += value.values() if isinstance(value, dict) else value or []
            elif key.endswith("_token") and isinstance(value, str | dict):
                named.append(value)
        named = [t if isinstance(t, dict) else {"content": t} for t in named]
        special = {str(token["content"]) for token in named}
        entries = [
            *(content.get("added_tokens") or []),
            *({**t, "id": int(i)} for i, t in decoder.items()),
            *(
                {"content": t, "id": i, "special": t in special}
                for t, i in plain.items()
            ),
            *({**token, "special": True} for token in named),
        ]
    except (AttributeError, KeyError, TypeError, ValueError):
        entries = [{}]
    return checked(entries, folder)


def check_steps(folder: str, vocabulary: str) -> bool | None:
    """Refuses a folder whose tokenizer takes other steps in transformers.

    Args:
        folder: str.
        vocabulary: str. `file_name` of the tokenizer's class.

    Returns:
        Whether each text of byte-level BPE begins with a space there; None if only its
        own file can say so.

    Raises:
        DataError: If a file says so.
    """
    path = files.join(folder, "tokenizer_config.json")
    config = _object(path)
    for key, values in _NEUTRAL.items():
        value = config.get(key)
        rule = f"{path}: {key} is not supported"
        fits = value in values or (not value and value is not False)
        require(fits, rule, value, error=DataError)
    names = [
        str(values.get("tokenizer_class") or "").removesuffix("Fast")
        for values in (_object(files.join(folder, "config.json")), config)
    ]
    for name in names:
        allowed = {f"{family}Tokenizer" for family in _CLASSES[vocabulary].split()}
        rule = f"{path}: tokenizer_class of a {vocabulary} must be {sorted(allowed)}"
        require(name in allowed | _ANY_CLASS, rule, name, error=DataError)
    has_space = config.get("add_prefix_space")
    is_pieces = vocabulary == "spiece.model"
    if has_space is None and (names[1] or names[0]) not in _ANY_CLASS:
        has_space = is_pieces  # the defaults of these classes
    rule = f"{path}: add_prefix_space must be true or, except of a spiece.model, false"
    require(has_space in (None, True, is_pieces), rule, has_space, error=DataError)
    return has_space


def _object(path: str) -> dict[str, Any]:
    return files.read_json(path) if files.exists(path) else {}
