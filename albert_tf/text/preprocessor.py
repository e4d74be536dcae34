"""Turns strings, pairs of strings and data sets of them into model inputs.

Legend: `B` batch, `T` sequence.
"""

import copy
import json
import os
from typing import Any

import numpy as np

import albert_tf
from albert_tf.errors import require
from albert_tf.storage import files
from albert_tf.text import inputs
from albert_tf.text.load import load_tokenizer
from albert_tf.text.tokenizer import Tokenizer

# File in a folder of assets.
_ASSET = "preprocessor.json"


class Preprocessor:
    """Builds `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, truncated and padded.

    If the second text has no tokens, the row has one text.

    The conventions are KerasHub's: called with `x`, `(x, y)` or `(x, y,
    sample_weight)` as arguments, it returns as many values, of which only `x` is
    changed. It works on Python strings and inside `tf.data`
    (`dataset.map(preprocessor)`), with the same result.

    Args:
        tokenizer: `Tokenizer`.
        max_seq_length: int. `T`, the length of every row. Longer texts are cut; of a
            pair, the longer text first.

    Call arguments:
        x: str; a list, array or tensor of `B` strings; or a tuple of two of these, the
            first and the second texts.
        y: Labels, or None.
        sample_weight: Weights of the examples, or None.

    Returns:
        dict of int32 `[B, T]`, or `[T]` for a single text: `token_ids`, `segment_ids`
        and `padding_mask` (1 = real). NumPy arrays for Python strings, TensorFlow
        tensors for tensors.

    Example:
        >>> import albert_tf
        >>> preprocess = albert_tf.Preprocessor.from_pretrained(
        ...     "demo_output/pretrain/model", max_seq_length=16)
        >>> batch = preprocess(["What a film!", "Never again."])
        >>> {name: value.shape for name, value in batch.items()}
        {'token_ids': (2, 16), 'segment_ids': (2, 16), 'padding_mask': (2, 16)}
        >>> pairs = preprocess((["Is it red?"], ["It is blue."]))
        >>> int(pairs["segment_ids"].max())
        1
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int = 512):
        inputs.check_max_seq_length(max_seq_length, pairs=False)
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length

    @classmethod
    def from_pretrained(
        cls, path: str | os.PathLike, max_seq_length: int | None = None
    ) -> "Preprocessor":
        """Loads the preprocessor of a model folder that holds a tokenizer.

        Args:
            path: str or path. As for `albert_tf.from_pretrained`.
            max_seq_length: int or None. Length of a row. Default: the length the model
                was fine-tuned with, or else the longest it can read.
        """
        return albert_tf._loader().load_preprocessor(path, max_seq_length)

    def for_segments(self, num_segments: int) -> "Preprocessor":
        """Returns this preprocessor with `Tokenizer.for_segments`."""
        tokenizer = self.tokenizer.for_segments(num_segments)
        if tokenizer is self.tokenizer:
            return self
        result = copy.copy(self)
        result.tokenizer = tokenizer
        return result

    def save_assets(self, folder: str) -> None:
        """Writes the tokenizer and the length of rows into a folder."""
        self.tokenizer.save(files.join(folder, self.tokenizer.file_name))
        values = {
            "max_seq_length": self.max_seq_length,
            "file": self.tokenizer.file_name,
            "tokenizer": self.tokenizer.get_config(),
        }
        files.write_text(files.join(folder, _ASSET), json.dumps(values))

    @classmethod
    def load_assets(cls, folder: str) -> "Preprocessor | None":
        """Returns the preprocessor stored by `save_assets`, or None without one."""
        if not files.exists(files.join(folder, _ASSET)):
            return None
        values = files.read_json(files.join(folder, _ASSET))
        # An untrusted file must not point outside the folder.
        path = files.join(folder, os.path.basename(values["file"]))
        tokenizer = load_tokenizer(path, **values["tokenizer"])
        return cls(tokenizer, values["max_seq_length"])

    def __call__(self, x, y=None, sample_weight=None):
        parts = x if isinstance(x, tuple) else (x,)
        require(1 <= len(parts) <= 2, "x: expected one text or two", len(parts))
        is_tensor = any(_is_tensor(part) for part in parts)
        encoded = self._in_graph(*parts) if is_tensor else self._in_python(*parts)
        if sample_weight is not None:
            return encoded, y, sample_weight
        return encoded if y is None else (encoded, y)

    def encode_texts(self, x: Any) -> Any:
        """Encodes texts and data sets of texts, and returns everything else unchanged.

        Args:
            x: The `x` argument of `fit`: texts, a `tf.data.Dataset` whose first
                component is texts, or ready inputs.
        """
        if hasattr(x, "element_spec"):
            spec = x.element_spec
            # As in Keras, a tuple is (x, y) or (x, y, sample_weight).
            first = spec[0] if isinstance(spec, tuple) else spec
            return x.map(self, num_parallel_calls=-1) if _is_text(first) else x
        parts = x if isinstance(x, tuple) else (x,)
        for part in parts or [[]]:
            sized = hasattr(part, "__len__") and not isinstance(part, str | bytes)
            is_empty = sized and not _is_tensor(part) and not len(part)
            require(not is_empty, "x: expected at least one text, received none")
        if not _is_text(x):
            return x
        return self(tuple(map(_as_list, parts)))

    def _in_python(self, *parts) -> dict[str, np.ndarray]:
        single = isinstance(parts[0], str | bytes)
        columns = [_strings(_as_list(part)) for part in parts]
        length = self.max_seq_length
        encoded = inputs.encode_texts(self.tokenizer, *columns, max_seq_length=length)
        rows = np.arange(len(encoded))
        batch = inputs.padded_inputs(encoded, rows, length, self.tokenizer.pad_id)
        return {k: v[0] for k, v in batch.items()} if single else batch

    def _in_graph(self, first, second=None) -> dict:
        from albert_tf.text import inputs_graph

        return inputs_graph.fixed_length_inputs(
            self.tokenizer, first, second, self.max_seq_length
        )


def _is_tensor(x: Any) -> bool:
    """Returns whether `x` is a TensorFlow object, without importing TensorFlow."""
    return type(x).__module__.partition(".")[0] == "tensorflow"


def _is_text(x: Any) -> bool:
    if isinstance(x, tuple):
        return 1 <= len(x) <= 2 and all(_is_text(part) for part in x)
    if isinstance(x, list):
        return bool(x) and isinstance(x[0], str | bytes)
    kind = getattr(x, "dtype", getattr(x, "dtypes", None))  # a table has several
    if _is_tensor(x):
        return getattr(kind, "name", None) == "string"
    if kind is not None and hasattr(x, "__len__"):  # NumPy, pandas
        return len(x) > 0 and isinstance(np.asarray(x, object).flat[0], str | bytes)
    return isinstance(x, str | bytes)


def _as_list(texts: Any) -> Any:
    return [texts] if isinstance(texts, str | bytes) else texts


def _strings(texts: Any) -> list:
    texts = np.asarray(texts, object)
    message = f"texts: expected a list of strings, received {texts.ndim}-d"
    require(texts.ndim == 1, f"{message}; of a table, give one column: df['text']")
    for i, text in enumerate(texts):
        require(isinstance(text, str | bytes), f"texts[{i}] must be a string", text)
    return texts.tolist()
