"""ALBERT's tokenizer as TensorFlow operations, for use inside a SavedModel.

Legend: `B` strings.

Only `SentencepieceOp`, `SentencepieceTokenizeOp` and, for offsets,
`SentencepieceTokenizeWithOffsetsOp` come from TensorFlow Text; a stock TensorFlow
Serving has them. Everything else is core TensorFlow. Unicode normalization uses tables
made by `normalization` instead of ICU, because ICU follows another Unicode version, and
because `tf.strings.lower` cuts a string at its first NUL and depends on the locale.
"""

import hashlib

import tensorflow as tf

from albert_tf.errors import UsageError
from albert_tf.text import normalization
from albert_tf.text.tokenizer_graph import CharacterFold, GraphBase, as_utf8


class GraphTokenizer(GraphBase):
    """Turns strings into the same ids as `AlbertTokenizer.encode`.

    Attach the object to the model that is saved (`archive.track(graph_tokenizer)`, or
    an attribute of a `tf.Module`); otherwise its vocabulary is lost.
    """

    def __init__(self, tokenizer):
        super().__init__(tokenizer)
        self._do_lower_case = tokenizer.do_lower_case
        table = normalization.character_table(
            tokenizer.do_lower_case, tokenizer.keep_accents
        )
        self.fold = CharacterFold(table)
        every_id = range(tokenizer.vocab_size)
        with tf.init_scope(), tf.device("CPU:0"):
            self._sentencepiece = _sentencepiece_tokenizer(tokenizer.model)
            self._continuations = tf.constant(
                [tokenizer.continuation(i) for i in every_id], tf.int32
            )
            self._replacements = None
            if tokenizer.replacements:
                self._replacements = tf.ragged.constant(
                    [tokenizer.replacements.get(i, [i]) for i in every_id], tf.int32
                )

    def tokenize_between_added(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings `[B]` into ids, ragged int32 `[B, None]`."""
        ids = self._sentencepiece.tokenize(self.normalize(texts))
        if self._replacements is None:
            return ids
        return self.replace(ids).merge_dims(1, 2)

    def tokenize_with_bytes(self, normalized: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        """Tokenizes normalized strings `[B]`, without the digit-comma rule.

        Returns three ragged tensors `[B, None]`: ids (int32), and the first byte and
        the end byte (exclusive) of each piece (int64).
        """
        return self._sentencepiece.tokenize_with_offsets(normalized)

    def replace(self, ids) -> tf.RaggedTensor:
        """Returns the ids that replace each id (the digit-comma rule)."""
        return tf.gather(self._replacements, ids)

    def tokenize_between(self, parts, is_first, is_last):
        """See the base class. Removes the `▁` of parts that continue a word."""
        del is_last
        ids = self.tokenize(parts)
        white_space = normalization.white_space_pattern()
        apart = tf.strings.regex_full_match(parts, f"(?s){white_space}.*")
        continues = ~is_first & ~apart & (ids.row_lengths() > 0)
        firsts = tf.boolean_mask(ids.row_starts(), continues)
        new = tf.gather(self._continuations, tf.gather(ids.values, firsts))
        ids = ids.with_values(
            tf.tensor_scatter_nd_update(ids.values, firsts[:, None], new)
        )
        return tf.ragged.boolean_mask(ids, ids >= 0)

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalizes a vector of strings as `normalization.normalize_text` does."""
        texts = as_utf8(texts)
        pattern = normalization.white_space_pattern()
        texts = tf.strings.strip(tf.strings.regex_replace(texts, pattern, " "))
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        new = self.fold(codes.values)
        splits = tf.gather(new.row_splits, codes.row_splits)
        codes = tf.RaggedTensor.from_row_splits(new.values, splits, validate=False)
        return self.lower_sigma(tf.strings.unicode_encode(codes, "UTF-8"), codes)

    def lower_sigma(self, texts: tf.Tensor, codes: tf.RaggedTensor) -> tf.Tensor:
        """Lower-cases the capital sigmas of folded texts, if the text is lower-cased.

        `codes`, ragged int32 `[B, None]`, are the characters of `texts`, string `[B]`.
        """
        if not self._do_lower_case:
            return texts
        return tf.cond(
            tf.reduce_any(codes.values == ord("Σ")),
            lambda: _lower_sigma(texts),
            lambda: texts,
        )


def _lower_sigma(texts: tf.Tensor) -> tf.Tensor:
    pattern = normalization.final_sigma_pattern()
    texts = tf.strings.regex_replace(texts, pattern, r"\1ς\2")
    return tf.strings.regex_replace(texts, "Σ", "σ")


def _sentencepiece_tokenizer(model: bytes):
    try:
        import tensorflow_text
    except ImportError as e:
        raise UsageError(
            "tokenizing in the graph requires TensorFlow Text in TensorFlow's version "
            f"(pip install tensorflow-text); AlbertTokenizer.encode does not: {e}"
        ) from None
    tokenizer = tensorflow_text.SentencepieceTokenizer(model=model, out_type=tf.int32)
    tokenizer._model_resource = _Model(model)
    return tokenizer


class _Model(tf.saved_model.experimental.TrackableResource):
    """A SentencePiece model that lives as long as the process."""

    # TensorFlow Text's own resource has no name. It belongs to a kernel in TensorFlow's
    # cache, and is destroyed with it when a seed is set (keras.utils.set_random_seed).

    def __init__(self, model: bytes):
        super().__init__()
        self._model = model
        self._shared_name = f"sentencepiece_{hashlib.sha256(model).hexdigest()}"
        self.resource_handle  # noqa: B018 - creates it

    def _create_resource(self):
        from tensorflow_text.python.ops import sentencepiece_tokenizer

        create = sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op
        return create(model=self._model, shared_name=self._shared_name)
