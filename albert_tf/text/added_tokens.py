"""Tokens that were added to a finished vocabulary, and the files that name them.

Text is divided at these tokens before it is tokenized, in the order of the tokenizers
library: first at the tokens that are matched in the raw text; then the text between
them is normalized and divided at all others. Of several tokens that start at the same
place, the longest wins. Each part is then tokenized like a text of its own.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from albert_tf.errors import DataError, require
from albert_tf.storage import files

# Special tokens of the models; when written in a text, they are plain text.
ROLES = {
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
}
_FLAGS = ("single_word", "lstrip", "rstrip", "special")
# Classes of transformers with the same tokenization steps, by vocabulary file.
_CLASSES = {
    "spiece.model": "Albert",
    "vocab.txt": "Bert Electra DistilBert MobileBert ConvBert LayoutLM SqueezeBert "
    "MPNet Funnel Lxmert",
    "tokenizer.json": "Roberta GPT2 Longformer Bart LED",
}
_ANY_CLASS = {"", "TokenizersBackend", "PreTrainedTokenizer"}
# Settings of steps that are not reproduced, and the values that disable these steps.
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
    """Added tokens that are matched in one pass.

    Attributes:
        is_normalized: Whether the text is normalized first.
        tokens: Their entries in a `tokenizer.json`, keyed by the matched text.
    """

    is_normalized: bool
    tokens: dict[str, Mapping[str, Any]]
    pattern: re.Pattern


class AddedTokens:
    """Finds added tokens, entries of a `tokenizer.json`, in text.

    Raises `DataError` if a token asks to be matched in an unsupported way.
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
            # Longest first, because `re` takes the first alternative that matches.
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
    """Returns the entry of an added token with all keys present."""
    entry: dict[str, Any] = {"id": token_id, "content": token["content"]}
    entry |= {flag: bool(token.get(flag)) for flag in _FLAGS}
    return {**entry, "normalized": bool(token.get("normalized", not entry["special"]))}


def checked(
    entries: Iterable[Any], source: str, roles: Collection[str] = ROLES
) -> list[dict[str, Any]]:
    """Returns the entries of added tokens, each once, without the tokens in `roles`.

    The first entry of a token decides how the token is matched. Raises `DataError`,
    naming `source`, for an invalid entry.
    """
    result: dict[str, dict[str, Any]] = {}
    for entry in entries:
        token = entry.get("content") if isinstance(entry, dict) else None
        fits = isinstance(token, str) and token and type(entry.get("id", 0)) is int
        require(fits, f"{source}: its added tokens cannot be read", error=DataError)
        if token not in roles:
            result.setdefault(token, entry)
    return list(result.values())


def read(folder: str) -> list[dict[str, Any]]:
    """Returns the added tokens named by the files of transformers in a folder.

    A token without an id is in the vocabulary already, or follows it. Raises
    `DataError` if a file is damaged.
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
    # A special token that the list of a byte-level BPE lacks was added by a user.
    own = _object(files.join(folder, "vocab.json"))
    return checked(entries, folder, ROLES.intersection(own) if own else ROLES)


def check_steps(folder: str, vocabulary: str) -> bool | None:
    """Returns whether byte-level BPE puts a space before each text; None if unknown.

    Raises `DataError` if a file of the folder asks for other steps than transformers'.
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


def check_roles(folder: str, tokenizer: Any) -> None:
    """Raises `DataError` if a folder gives a role to another token of a tokenizer."""
    path = files.join(folder, "tokenizer_config.json")
    for key, stated in _object(path).items():
        role, known = key.removesuffix("_token"), tokenizer.vocabulary
        stated = stated.get("content") if isinstance(stated, dict) else stated
        if f"{role}_token" == key and hasattr(tokenizer, f"{role}_id"):
            token = tokenizer.id_to_token(getattr(tokenizer, f"{role}_id"))
            rule = f"{path}: {key} must be {token!r}, which has that role here"
            fits = stated == token or stated not in known
            require(fits, rule, stated, error=DataError)


def _object(path: str) -> dict[str, Any]:
    return files.read_json(path) if files.exists(path) else {}
