"""Fills in masked words with a trained masked LM, or every checkpoint of a run."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from albert_tf import features
from albert_tf.errors import DataError, UsageError, require
from albert_tf.heads import GENERATOR, MODEL
from albert_tf.inference import predictor
from albert_tf.inference.forward import ROWS, compile_encoder, steps
from albert_tf.storage import files, folders
from albert_tf.tasks.outputs import sorted_batches
from albert_tf.text import inputs
from albert_tf.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import keras

_CHECKPOINT = re.compile(r"step-(\d+)\.index")
# Blanks that `clean_up_tokenization_spaces` of transformers removes.
_BLANKS = re.compile(r" ([.?!,]|n't|'(?:m|s|ve|re))| (') ")


class FillMask(predictor.Loadable):
    """Predicts the tokens at `[MASK]`.

    A text may contain `[MASK]` any number of times. It stands for the tokenizer's mask
    token in any vocabulary (RoBERTa's `<mask>` is accepted, too). Texts that are too
    long are rejected instead of cut: a cut could remove a mask or the context that
    determines its token.

    Args:
        model: `AlbertMaskedLM` or `AlbertPretrainer`.
        tokenizer: `Tokenizer`.
        batch_size: int. Maximum number of texts per call of the model.

    Example:
        >>> import albert_tf, pandas as pd
        >>> fill_mask = albert_tf.FillMask.from_pretrained("demo_output/pretrain/model")
        >>> answers = fill_mask("Returns the [MASK] of the array.", top_k=3)
        >>> answers[0]
        {'score': 0.11, 'token': 53, 'token_str': 'array',
         'sequence': 'returns the array of the array.'}
        >>> pd.DataFrame(answers).columns.tolist()
        ['score', 'token', 'token_str', 'sequence']
    """

    heads = ("masked_lm",)

    def __init__(
        self, model: "keras.Model", tokenizer: Tokenizer, batch_size: int = 32
    ):
        predictor.check_fits(model, tokenizer)
        expected = "model must have a masked LM head (AlbertMaskedLM, AlbertPretrainer)"
        kind = type(model).__name__
        has_head = getattr(model, "mlm_head", None) is not None
        require(has_head, f"{expected}, received {kind}")
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self._forward = compile_encoder(
            model, self._probabilities, (*ROWS, features.MASK_POSITIONS)
        )

    def __call__(
        self, texts: str | Sequence[str], top_k: int = 5, clean_up: bool = False
    ) -> list:
        """Returns the `top_k` most probable tokens for every mask.

        Args:
            texts: str or sequence of str.
            top_k: int. Number of tokens, at most the size of the vocabulary.
            clean_up: bool. Whether `sequence` loses the blanks before punctuation and
                English contractions, as with `clean_up_tokenization_spaces` of
                transformers: "so cute." instead of "so cute .".

        Returns:
            For a text, a list of dicts, best first: `score` (probability), `token`
            (id), `token_str` (without the mark of a word's start) and `sequence` (the
            text with the token in its place). For a text with several masks, a list of
            such lists; the other masks stay `[MASK]` in `sequence`. For several texts,
            a list of results. This is the form of Hugging Face's fill-mask pipeline.

        Raises:
            UsageError: If a text contains no mask or is longer than the model allows.
            DataError: If a probability is not finite.
        """
        if isinstance(texts, str | bytes):
            return self([texts], top_k, clean_up)[0]
        size = self.tokenizer.vocab_size
        require(1 <= top_k <= size, f"top_k must be from 1 to {size}", top_k)
        rows = [self.encode(text) for text in predictor.as_texts("texts", texts)]
        results = [[]] * len(rows)
        longest = self.model.config.max_position_embeddings
        lengths = np.array([len(row) for row in rows], int)
        for numbers in sorted_batches(lengths, self.batch_size):
            chosen = [rows[i] for i in numbers]
            batch, masks = inputs.masked_inputs(
                self.tokenizer, chosen, longest, steps()["step"]
            )
            scores = self._forward(batch)
            need = f"{self.model.name}: its probabilities are not finite; its weights "
            need += "are damaged, or training diverged"
            require(np.isfinite(scores).all(), need, error=DataError)
            for i, row, places, found in zip(
                numbers, chosen, masks, scores, strict=True
            ):
                per_mask = [
                    self._candidates(row, place, found[k], top_k, clean_up)
                    for k, place in enumerate(places)
                ]
                results[i] = per_mask[0] if len(per_mask) == 1 else per_mask
        return results

    def encode(self, text: str | bytes) -> list[int]:
        """Returns the token ids of a text, special tokens included.

        Raises:
            UsageError: If the text contains no mask or is longer than the model allows.
        """
        longest = self.model.config.max_position_embeddings
        return inputs.encode_masked(
            self.tokenizer, text, longest, "max_position_embeddings"
        )

    def _probabilities(self, batch):
        import keras

        outputs = self.model(batch, training=False)
        logits = outputs["mlm_logits"] if isinstance(outputs, dict) else outputs
        # A model's table may be larger than the vocabulary (padded for the hardware).
        return keras.ops.softmax(logits[..., : self.tokenizer.vocab_size])

    def _candidates(
        self, row, position, scores, top_k, clean_up
    ) -> list[dict[str, Any]]:
        best = np.argsort(-scores, kind="stable")[:top_k]
        candidates = []
        for token in best.tolist():
            filled = [*row[1:position], token, *row[position + 1 : -1]]
            sequence = self.tokenizer.decode(filled, skip_special=False)
            if clean_up:
                sequence = _BLANKS.sub(lambda m: m[1] or m[2], sequence)
            candidates.append(
                {
                    "score": float(scores[token]),
                    "token": token,
                    "token_str": self.tokenizer.id_to_text(token),
                    "sequence": sequence,
                }
            )
        return candidates


def answer_all(
    run: str, prompts: Sequence[str], top_k: int = 5
) -> Iterator[dict[str, Any]]:
    """Answers texts with every checkpoint of a run, its best model and the last.

    A checkpoint that a run in progress removes meanwhile is left out, with a warning.
    Yields a dict: `name` ("step 600", "best, step 400" or "model", with the kind of
    weights if the run has averages) and `answers`. The latter has for each text a list
    of masks, each with a list of (token, probability).
    """
    fill_mask = None
    for name, path in _sources(run):
        try:
            loaded = FillMask.from_pretrained(path)
        except (DataError, UsageError) as e:
            logging.warning("%s: left out: %s", path, e)
            continue
        if fill_mask is None:
            fill_mask = loaded
        else:
            # The graph is compiled once: the checkpoints of a run have one config.
            fill_mask.model.set_weights(loaded.model.get_weights())
        try:
            results = fill_mask(list(prompts), top_k)
        except DataError as e:
            logging.warning("%s: left out: %s", path, e)
            continue
        answers = []
        for result in results:
            masks = [result] if isinstance(result[0], dict) else result
            answers.append(
                [[(one["token_str"], one["score"]) for one in mask] for mask in masks]
            )
        yield {"name": name, "answers": answers}


def _sources(run: str) -> list[tuple[str, str]]:
    """Returns names and paths of models that answer: checkpoints by age, best, last."""
    folder = files.join(run, "checkpoints")
    names = files.list_folder(folder) if files.is_folder(folder) else []
    steps = sorted(
        int(match[1]) for match in map(_CHECKPOINT.fullmatch, names) if match
    )
    where = files.join(run, "run.json")
    settings = files.read_json(where).get("settings") if files.exists(where) else {}

    def name(of: str, averaged: bool) -> str:
        kind = "averaged" if averaged else "last"
        return f"{of}, {kind} weights" if settings.get("ema_decay") else of

    averaged = settings.get("export_weights") == "average"
    # Before the first update there is no average.
    models = [
        (name(f"step {step:,}", averaged and step > 0), f"{folder}/step-{step}")
        for step in steps
    ]
    best = files.join(run, "best")
    if folders.is_complete(os.fspath(best)):
        record = files.read_json(files.join(best, "best.json"))
        of_average = str(record.get("metric")).startswith("ema_")
        models.append((name(f"best, step {record.get('step')}", of_average), best))
    for folder in (GENERATOR, MODEL):
        model = files.join(run, folder)
        if folders.is_complete(os.fspath(model)):
            models.append((name("model", averaged), model))
            break
    return models
