"""Decides which tokenizer goes with a checkpoint: its own, or a given one that fits."""

import os

from albert_tf.converters.checkpoint.checkpoint import Checkpoint
from albert_tf.errors import UsageError
from albert_tf.text.load import OPTIONS, check_options, load_tokenizer, warn_if_small
from albert_tf.text.tokenizer import Tokenizer

# Options that a command has flags for.
_FLAGS = ("do_lower_case", "keep_accents")


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
    known = {name: stored[name] for name in OPTIONS if name in stored}
    values = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
    options = {name: value for name, value in values.items() if value is not None}
    check_options(options, known, checkpoint.path)
    if tokenizer is None:
        chosen = _with_options(checkpoint.make_tokenizer(), options)
    elif isinstance(tokenizer, Tokenizer):
        # A foreign vocabulary is the better reason to refuse.
        if checkpoint.tokenizer is not None:
            check_same(tokenizer, checkpoint)
        config = tokenizer.get_config()
        given = {name: config[name] for name in _FLAGS if name in config}
        check_options(given, known, checkpoint.path)
        chosen = _with_options(tokenizer, options)
    else:
        chosen = load_tokenizer(tokenizer, **{**known, **options})
        if checkpoint.tokenizer is not None:
            check_same(chosen, checkpoint)
    warn_if_small(chosen, checkpoint.config.vocab_size)
    return chosen


def check_same(tokenizer: Tokenizer, checkpoint: Checkpoint) -> None:
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


def _with_options(tokenizer: Tokenizer, options: dict[str, bool]) -> Tokenizer:
    config = tokenizer.get_config()
    changed = {k: v for k, v in options.items() if config.get(k, v) != v}
    if not changed:
        return tokenizer
    return type(tokenizer)(tokenizer.model, **{**config, **changed})
