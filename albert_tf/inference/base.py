"""Loading, checking and running a model; shared by the classes of this folder."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.detect import open_checkpoint
from albert_tf.converters.tokenizers import choose_tokenizer
from albert_tf.errors import UsageError
from albert_tf.heads import find
from albert_tf.text.normalization import to_unicode
from albert_tf.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import keras


class Loadable:
    """A class made from a model and its tokenizer, which can be loaded from files.

    Attributes:
        heads: tuple of str or None. Names of the heads that the model may have; None
            for the encoder alone. The files' own head is taken if it is one of them,
            and the first one otherwise.
    """

    heads: ClassVar[tuple[str | None, ...]]

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike,
        tokenizer: Tokenizer | str | os.PathLike | None = None,
        *,
        head: str | None = None,
        do_lower_case: bool | None = None,
        keep_accents: bool | None = None,
        **kwargs,
    ) -> Self:
        """Loads the model, what is recorded with it, and its tokenizer.

        Args:
            path: str or path. As for `albert_tf.from_pretrained`.
            tokenizer: `Tokenizer` or path. Needed if `path` contains none; another
                one than in `path` is refused.
            head: str or None. Name of the head, if the files do not say it.
            do_lower_case: bool or None. Needed if the tokenizer keeps case and `path`
                does not say so.
            keep_accents: bool or None. Needed if the tokenizer keeps accents and
                `path` does not say so.
            **kwargs: Other arguments of this class.

        Raises:
            UsageError: If the files do not contain a model with such a head, or
                contradict an argument.
        """
        if head is not None and head not in cls.heads:
            raise UsageError(
                f"head must be one of {', '.join(map(str, cls.heads))}, "
                f"received {head!r}"
            )
        heads = cls.heads if head is None else (head,)
        model, tokenizer = _load_model(
            path, heads, tokenizer, do_lower_case, keep_accents
        )
        return cls(model, tokenizer, **kwargs)


def _load_model(
    path, heads, tokenizer, do_lower_case, keep_accents
) -> "tuple[keras.Model, Tokenizer]":
    """Loads a model and its tokenizer, opening the files once."""
    with open_checkpoint(path) as checkpoint:
        head = choose_head(checkpoint, heads)
        tokenizer = choose_tokenizer(checkpoint, tokenizer, do_lower_case, keep_accents)
        # Keras is imported after what is wrong without it.
        from albert_tf.converters import keras_model

        model = keras_model.build_model(checkpoint, head)
        # Predictions of a head that was never trained are noise that looks like an
        # answer.
        for part in find(head).parts:
            missing = [n for n in model.untrained_weights if n.startswith(f"{part}/")]
            if missing:
                raise UsageError(
                    f"{path}: has no trained {part} ({missing[0]} is missing)"
                )
        return model, tokenizer


def choose_head(checkpoint: Checkpoint, heads: Sequence[str | None]) -> str | None:
    """Returns the head to build from an open checkpoint, before weights are read.

    Args:
        checkpoint: `Checkpoint`.
        heads: sequence of str or None. Names of the heads that will do; see `Loadable`.

    Raises:
        UsageError: If a part of the head has no weights at all.
        DataError: If the encoder holds an unknown tensor.
    """
    checkpoint.check_unknown(with_heads=False)
    head = checkpoint.head if checkpoint.head in heads else heads[0]
    for part in find(head).parts:
        if not any(name.startswith(f"{part}/") for name in checkpoint.tensors):
            raise UsageError(
                f"{checkpoint.path}: has no trained {part}, as a model has that was "
                f"fine-tuned; its head is {checkpoint.head or 'none'}"
            )
    return head


def check_fits(model: "keras.Model", tokenizer: Tokenizer) -> None:
    """Raises a UsageError if the tokenizer has more tokens than the model."""
    if tokenizer.vocab_size > model.config.vocab_size:
        raise UsageError(
            f"tokenizer: expected at most vocab_size={model.config.vocab_size} tokens, "
            f"as the model has, received {tokenizer.vocab_size}"
        )


def as_texts(name: str, texts: str | bytes | Iterable[str | bytes]) -> list:
    """Returns one text or several as a list.

    Args:
        name: str. Name of the argument, for error messages.
        texts: str, or iterable of str. UTF-8 bytes are accepted, too.

    Raises:
        UsageError: If it is neither, or an element is not a string.
    """
    if isinstance(texts, str | bytes):
        return [texts]
    if isinstance(texts, Mapping | Set) or not isinstance(texts, Iterable):
        raise UsageError(
            f"{name} must be a string or a list of strings, received "
            f"{type(texts).__name__}"
        )
    texts = list(texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str | bytes):
            raise UsageError(f"{name}[{i}] must be a string, received {text!r:.80}")
    return texts


def as_unicode(name: str, texts: str | bytes | Iterable[str | bytes]) -> list[str]:
    """Returns one text or several as a list of str; see `as_texts`.

    Bytes that are not UTF-8 become spaces. A str stays as it is, so that places in it
    are those that the caller sees.
    """
    return [
        text if isinstance(text, str) else to_unicode(text)
        for text in as_texts(name, texts)
    ]


def check_list(name: str, value: Any) -> None:
    """Raises a UsageError if an argument is not a sequence of several things.

    Args:
        name: str. Name of the argument.
        value: Its value.
    """
    single = isinstance(value, str | bytes | Mapping | Set)
    if single or not isinstance(value, Iterable):
        raise UsageError(
            f"{name} must be a list, received {type(value).__name__} {value!r:.60}"
        )


def check_count(name: str, value: Any) -> None:
    """Raises a UsageError if an argument is not a positive integer.

    Args:
        name: str. Name of the argument.
        value: Its value.
    """
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < 1:
        raise UsageError(f"{name} must be a positive integer, received {value!r:.80}")


def as_graph(forward: Callable, names: Iterable[str]) -> Callable:
    """Compiles a function that calls a model; one graph serves batches of any size.

    Eager execution keeps every layer's hidden states and attention maps until the call
    returns. A graph frees a tensor after its last use and skips unused outputs.

    Args:
        forward: callable. Function of a dict of int32 tensors of rank 2.
        names: Iterable of str. Keys of the dict.

    Returns:
        callable. The same function, for a dict of arrays.
    """
    import keras

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        spec = tf.TensorSpec([None, None], tf.int32)
        forward = tf.function(forward, input_signature=[dict.fromkeys(names, spec)])

    def run(batch):
        batch = {k: keras.ops.convert_to_tensor(v, "int32") for k, v in batch.items()}
        return keras.ops.convert_to_numpy(forward(batch))

    return run
