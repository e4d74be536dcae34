"""Names the files of a checkpoint's tokenizer, and decides which tokenizer to use."""

import os
from collections.abc import Callable, Iterable

from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.errors import UsageError
from albert_tf.storage import files
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.load import check_options, load_tokenizer, warn_if_small
from albert_tf.text.sentencepiece import OPTIONS as OPTION_NAMES
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.tokenizer import Tokenizer

SPIECE = AlbertTokenizer.file_name
JSON = ByteBPETokenizer.file_name
# Hugging Face's name; formats without such a file of their own get it too.
OPTIONS = "tokenizer_config.json"
# Options that a command has flags for.
_FLAGS = ("do_lower_case", "keep_accents")


def spiece_of(tokenizer: Tokenizer, format: str) -> bytes:
    """Returns a tokenizer's SentencePiece model.

    Raises:
        UsageError: If the tokenizer is of another kind, which the format cannot store.
    """
    if tokenizer.file_name != SPIECE:
        raise UsageError(
            f"{format} stores SentencePiece tokenizers only, received "
            f"{type(tokenizer).__name__}"
        )
    return tokenizer.model


def stored_options(folder: str) -> dict[str, bool]:
    """Returns the tokenizer's options that a folder names; empty if it names none.

    Raises:
        DataError: If the file is damaged.
    """
    path = files.join(folder, OPTIONS)
    values = files.read_json(path) if files.exists(path) else {}
    return {k: values[k] for k in OPTION_NAMES if isinstance(values.get(k), bool)}


def finder(
    folder: str, names: Iterable[str], make: Callable[[str], Tokenizer]
) -> Callable[[], Tokenizer] | None:
    """Returns a function that builds a folder's tokenizer; None if it has none.

    Args:
        folder: str.
        names: iterable of str. Files that may hold it; the first that exists is taken.
        make: callable. From the path of the file to the tokenizer.
    """
    paths = [files.join(folder, name) for name in names]
    found = next(filter(files.exists, paths), None)
    return None if found is None else lambda: make(found)


def choose_tokenizer(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer | str | os.PathLike | None = None,
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
) -> Tokenizer:
    """Returns the tokenizer to use with the weights of a checkpoint.

    Args:
        checkpoint: `Checkpoint`. Its own tokenizer is the default.
        tokenizer: `Tokenizer`, path or None. A tokenizer given by the user; a path is
            loaded with the options that the checkpoint has.
        do_lower_case: bool or None. Option to set if the checkpoint does not say it.
        keep_accents: bool or None. The same.

    Raises:
        UsageError: If the given tokenizer or an option contradicts the checkpoint.
        DataError: If neither is there, or a file is not a tokenizer.
    """
    stored = checkpoint.tokenizer_options
    known = {name: stored[name] for name in OPTION_NAMES if name in stored}
    values = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
    options = {name: value for name, value in values.items() if value is not None}
    check_options(options, known, checkpoint.path)
    if tokenizer is None:
        chosen = checkpoint.make_tokenizer()
    elif isinstance(tokenizer, Tokenizer):
        chosen = tokenizer
    else:
        chosen = load_tokenizer(tokenizer, **{**known, **options})
    if tokenizer is not None and checkpoint.tokenizer is not None:
        _check_same(chosen, checkpoint)
    config = chosen.get_config()
    if chosen is tokenizer:
        given = {name: config[name] for name in _FLAGS if name in config}
        check_options(given, known, checkpoint.path)
    if any(config.get(name, value) != value for name, value in options.items()):
        chosen = type(chosen)(chosen.model, **{**config, **options})
    warn_if_small(chosen, checkpoint.config.vocab_size)
    return chosen


def _check_same(tokenizer: Tokenizer, checkpoint: Checkpoint) -> None:
    """Refuses a tokenizer whose ids mean other tokens than the checkpoint's.

    Content decides, not names. A file that a format had to rewrite has another digest
    but the same tokens at the same ids.

    Raises:
        UsageError: If the two differ.
    """
    own = checkpoint.make_tokenizer()
    if tokenizer.sha256 == own.sha256 or tokenizer.vocabulary == own.vocabulary:
        return
    raise UsageError(
        f"spm_model_file: is not the tokenizer of {checkpoint.path}, whose weights "
        f"belong to the vocabulary of sha256 {own.sha256[:12]} ({own.vocab_size:,} "
        f"tokens), received {tokenizer.sha256[:12]} ({tokenizer.vocab_size:,}); leave "
        "it out to use the checkpoint's own"
    )
