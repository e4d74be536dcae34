"""Models for people who have texts: `FillMask`, `Classifier`.

Legend: `B` batch, `T` sequence, `P` masks in a text, `V` vocabulary, `C` labels.
"""

import keras

from albert_tf.errors import UsageError
from albert_tf.text.tokenizer import Tokenizer


def check_fits(model: keras.Model, tokenizer: Tokenizer) -> None:
    """Raises a UsageError if the tokenizer has more tokens than the model."""
    if tokenizer.vocab_size > model.config.vocab_size:
        raise UsageError(
            f"tokenizer: expected at most vocab_size={model.config.vocab_size} pieces, "
            f"as the model has, received {tokenizer.vocab_size}"
        )


def check_trained(model: keras.Model, path, part: str) -> None:
    """Raises a UsageError if weights whose names contain `part` are untrained."""
    # Predictions of a head that was never trained are noise that looks like an answer.
    untrained = getattr(model, "untrained_weights", None) or ()
    missing = [name for name in untrained if name.startswith(part)]
    if missing:
        raise UsageError(f"{path}: holds no {part} ({missing[0]} is missing)")
