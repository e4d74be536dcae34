"""Shows what happens to texts inside an encoder, layer by layer.

State 0 is the input of the first layer: the embeddings, projected to the width of the
layers. State `l` is the output of layer `l`, which read state `l - 1`; where weights
are shared, a layer is one application of them.

*Transitions* are Figure 1 of the paper (arXiv:1909.11942, section 3.1), the "L2
distances and cosine similarity (in terms of degree)" of the input and the output of
each layer. Each is computed for one token, then averaged over all tokens of all texts,
`[CLS]` and `[SEP]` included, padding excluded.

*Answers* are given by the masked-LM head for each state, with the weights of the head
after the last layer: it was trained to read the last state only.

Legend: `L` layers, `T` tokens, `D` hidden, `N` heads, `P` masks, `V` vocabulary.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf.converters.detect import open_checkpoint
from albert_tf.converters.keras_model import build_model
from albert_tf.converters.tokenizers import choose_tokenizer
from albert_tf.errors import DataError, require
from albert_tf.inference import predictor
from albert_tf.inference.forward import ROWS, compile_encoder, steps
from albert_tf.text import inputs

# Our own sentences, so that no corpus is needed to inspect a model.
TEXTS = (
    "The keys to the old cabinet are on the table.",
    "Rain fell all night, and by morning the river had reached the bridge.",
    "She asked the doctor whether the results had come, but he had not seen them.",
    "Shares of the company rose by four percent after it reported higher sales.",
    "If you heat the mixture slowly, the sugar dissolves before it boils.",
    *inputs.PROMPTS,
)
# Maximum number of tokens of the text whose attention is shown, to stay legible.
_MAX_SHOWN = 24
_DIGITS = 5


def inspect_model(
    path: str | os.PathLike,
    texts: Sequence[str] = TEXTS,
    *,
    layers: Sequence[int] | None = None,
    top_k: int = 5,
    max_seq_length: int | None = None,
    tokenizer: str | os.PathLike | None = None,
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
) -> dict[str, Any]:
    """Returns measurements of texts inside the encoder of a checkpoint.

    Args:
        path: str or path. As for `albert_tf.from_pretrained`.
        texts: sequence of str. In texts with `[MASK]`, the masked-LM head answers. The
            attention of the first text is shown, cut to 24 tokens.
        layers: sequence of int. Layers whose attention is shown, from 1. Default: the
            first, a middle and the last one.
        top_k: int. Number of answers to each mask.
        max_seq_length: int or None. Longer texts are cut, but not a mask. Default: the
            model's maximum.
        tokenizer: str, path or None. For checkpoints that contain none; one that
            differs from the checkpoint's is rejected.
        do_lower_case, keep_accents: bool or None. As for `FillMask.from_pretrained`.

    Returns:
        dict, ready for JSON, with:

        - `model`, `format`, `head`, `family`, `sharing`, `num_hidden_layers`,
          `hidden_size`: The inspected model.
        - `texts`, `tokens`: Numbers of texts and tokens read.
        - `transitions`: For each layer from 1, `layer`, `l2_distance`, `cosine` and
          `degrees`.
        - `answers`: For each text with masks, `text` and `masks`: for each mask, for
          each state from 0, pairs of the best tokens and their probabilities.
        - `no_answers`: The reason why there are no answers, or "".
        - `tokens_shown`: The tokens of the first text.
        - `attention`: By layer, probabilities `[N, T, T]`: row `i` shows the tokens
          that token `i` reads.
        - `path`: `[L + 1, T, 2]`. Each token's states in the plane of the two principal
          components of all of them.
        - `path_variance`: Shares of the variance along these two components.

    Raises:
        UsageError: If an argument is invalid.
        DataError: If the files are damaged, or a state is not finite.

    Example:
        >>> import albert_tf
        >>> text = "Returns the [MASK] of the array."
        >>> found = albert_tf.inspect_model("demo_output/pretrain/model", [text])
        >>> found["transitions"][0]
        {'layer': 1, 'l2_distance': 9.2, 'cosine': 0.53, 'degrees': 57.2}
        >>> found["answers"][0]["masks"][0][-1][0]  # of the last layer, the best
        ['array', 0.11]
    """
    texts = predictor.as_unicode("texts", texts)
    require(len(texts) > 0, "texts must contain a text, is empty")
    predictor.check_count("top_k", top_k)
    with open_checkpoint(path) as opened:
        has_head = any(name.startswith("mlm_head/") for name in opened.tensors)
        tokenizer = choose_tokenizer(opened, tokenizer, do_lower_case, keep_accents)
        head = "masked_lm" if has_head else None
        model = build_model(opened, head, report=logging.info)
        about = {"format": opened.format, "head": opened.head}
    predictor.check_fits(model, tokenizer)
    looked = _Inspector(path, model, tokenizer, max_seq_length)
    chosen = looked.choose(layers)
    names = ("family", "sharing", "num_hidden_layers", "hidden_size")
    rows = [looked.encode(text) for text in texts]
    return {
        "model": os.fspath(path),
        **about,
        **{name: getattr(model.config, name) for name in names},
        **looked.states_of(texts, rows, top_k),
        **looked.attention_and_path(rows[0], chosen),
    }


class _Inspector:
    """A model under inspection; see `inspect_model`."""

    def __init__(self, path, model, tokenizer, max_seq_length):
        self.path = path
        self.model = model
        self.backbone = getattr(model, "backbone", model)
        self.tokenizer = tokenizer
        longest = model.config.max_position_embeddings
        self.longest = max_seq_length or longest
        inputs.check_max_seq_length(self.longest, pairs=False, longest=longest)
        untrained = any(n.startswith("mlm_head/") for n in model.untrained_weights)
        has_head = hasattr(model, "mlm_head") and not untrained
        self.no_answers = "" if has_head else "no trained masked-LM head"

    def choose(self, layers) -> list[int]:
        """Returns the layers whose attention is shown."""
        last = len(self.model.config.layer_table())
        chosen = sorted({1, (last + 1) // 2, last} if layers is None else {*layers})
        fits = all(type(layer) is int and 0 < layer <= last for layer in chosen)
        require(fits, f"layers must be from 1 to {last} for {self.path}", layers)
        return chosen

    def encode(self, text) -> list[int]:
        """Returns the token ids of a text, cut to the longest row but not at a mask."""
        tokenizer, room = self.tokenizer, self.longest - 2
        ids = tokenizer.encode_masked(text)
        expected = f"text: a mask lies behind max_seq_length={self.longest}, which cuts"
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        require(tokenizer.mask_id not in ids[room:], expected, shown)
        return [tokenizer.cls_id, *ids[:room], tokenizer.sep_id]

    def states_of(self, texts, rows, top_k) -> dict[str, Any]:
        """Returns the transitions of all rows and the answers to their masks."""
        asked = {"training": False, "output_hidden_states": True}
        read = lambda batch: self.backbone(batch, **asked)["hidden_states"]  # noqa: E731
        forward = compile_encoder(self.model, read, ROWS)
        sums, answers = 0.0, []
        for text, row in zip(texts, rows, strict=True):
            length = inputs.rounded_length(len(row), self.longest, steps()["step"])
            states = np.concatenate(forward(_batch(row, length)))[:, : len(row)]
            states = states.astype(np.float64)
            demand = f"{self.path}: its states are not finite; its weights are damaged"
            require(np.isfinite(states).all(), demand, error=DataError)
            sums = sums + transitions(states).sum(axis=-1)
            places = np.flatnonzero(np.equal(row, self.tokenizer.mask_id))
            if len(places) and not self.no_answers:
                best = self._answers(states[:, places], top_k)
                answers.append({"text": text, "masks": best})
        tokens = sum(map(len, rows))
        names = ("layer", "l2_distance", "cosine", "degrees")
        return {
            "texts": len(rows),
            "tokens": tokens,
            "transitions": [
                dict(zip(names, (layer, *values), strict=True))
                for layer, values in enumerate((sums / tokens).T.tolist(), 1)
            ],
            "answers": answers,
            "no_answers": self.no_answers or ("" if answers else "no text has a mask"),
        }

    def _answers(self, states, top_k) -> list:
        """Returns, by mask and state, the best tokens of states `[L + 1, P, D]`."""
        from keras import ops

        x = ops.convert_to_tensor(states, "float32")
        logits = self.model.mlm_head(x, self.backbone.word_embeddings)
        # A model's table may be larger than the vocabulary.
        probabilities = ops.softmax(logits[..., : self.tokenizer.vocab_size])
        best = ops.top_k(probabilities, min(top_k, self.tokenizer.vocab_size))
        scores, ids = map(ops.convert_to_numpy, best)

        def pairs(*place):
            best_pairs = zip(ids[place].tolist(), scores[place].tolist(), strict=True)
            return [[self.tokenizer.id_to_text(i), score] for i, score in best_pairs]

        states, masks = map(range, ids.shape[:2])
        return [[pairs(state, mask) for state in states] for mask in masks]

    def attention_and_path(self, row, layers) -> dict[str, Any]:
        """Returns the data for the pictures of one text."""
        from keras import ops

        row = [*row[: min(len(row), _MAX_SHOWN) - 1], row[-1]]
        # Not in a graph: only Keras's layers return the probabilities.
        asked = {"output_hidden_states": True, "output_attentions": True}
        outputs = self.backbone(_batch(row, len(row)), training=False, **asked)
        states = np.concatenate([*map(ops.convert_to_numpy, outputs["hidden_states"])])
        maps = outputs["attentions"]
        path, variance = principal_plane(states.astype(np.float64))
        return {
            "tokens_shown": [self.tokenizer.id_to_text(i) or "▁" for i in row],
            "attention": {
                str(n): _rounded(ops.convert_to_numpy(maps[n - 1])[0]) for n in layers
            },
            "path": _rounded(path),
            "path_variance": variance,
        }


def _batch(row: Sequence[int], length: int) -> dict[str, np.ndarray]:
    """Returns one row as a batch, with padding up to a length."""
    ids, mask = np.zeros((2, 1, length), np.int32)
    ids[0, : len(row)], mask[0, : len(row)] = row, 1
    return dict(zip(ROWS, (ids, 0 * ids, mask), strict=True))


def _rounded(values: np.ndarray) -> list:
    """Returns numbers for pictures as lists, rounded to keep the file short."""
    return values.astype(np.float64).round(_DIGITS).tolist()


def transitions(states: np.ndarray) -> np.ndarray:
    """Returns L2 distance, cosine and degrees, `[3, L, T]`, of `[L + 1, T, D]`."""
    before, after = states[:-1], states[1:]
    norm = lambda x: np.linalg.norm(x, axis=-1)  # noqa: E731
    product = np.maximum(norm(before) * norm(after), np.finfo(np.float64).tiny)
    cosine = np.clip((before * after).sum(axis=-1) / product, -1.0, 1.0)
    return np.stack([norm(after - before), cosine, np.degrees(np.arccos(cosine))])


def principal_plane(states: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Projects states `[L + 1, T, D]` to their first two principal components.

    Also returns the shares of the variance. The sign of each axis is chosen so that its
    largest weight is positive.
    """
    flat = states.reshape(-1, states.shape[-1])
    left, sizes, axes = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    largest = np.abs(axes[:2]).argmax(axis=1)
    signs = np.sign(axes[[0, 1], largest])
    variance = sizes[:2] ** 2 / max((sizes**2).sum(), np.finfo(np.float64).tiny)
    plane = left[:, :2] * sizes[:2] * signs
    return plane.reshape(*states.shape[:2], 2), variance.tolist()
