"""Configures which records are made."""

from dataclasses import dataclass, field

from albert_tf.data import keyed_random
from albert_tf.data.corpus.documents import RawDocument
from albert_tf.data.keyed_random import KeyedRandom
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.errors import UsageError

SPLITS = ("train", "eval")


@dataclass(frozen=True)
class RecordConfig:
    """Which records are made from text, locally or with Beam.

    Args:
        pairs: `PairConfig`. How documents are divided into examples.
        mask: `MaskingConfig`. How examples are masked; for dynamic records, only the
            statistics of the card use it.
        masking: str. "dynamic" (records without masks) or "static" (the original's).
        language: str. Language for splitting sentences.
        dupe_factor: int. Number of passes over each document, each with other random
            choices.
        eval_fraction: float. Fraction of documents held out for evaluation.
        sample_masks: bool. Whether to mask some dynamic records for the card.
    """

    pairs: PairConfig = field(default_factory=PairConfig)
    mask: MaskingConfig = field(default_factory=MaskingConfig)
    masking: str = "dynamic"
    language: str = "en"
    dupe_factor: int = 1
    eval_fraction: float = 0.0
    sample_masks: bool = True

    def __post_init__(self):
        if self.masking not in ("dynamic", "static"):
            raise UsageError(
                f"masking: expected 'dynamic' or 'static', received {self.masking!r}"
            )
        if self.dupe_factor < 1:
            raise UsageError(
                f"dupe_factor: must be positive, received {self.dupe_factor}"
            )
        if not 0 <= self.eval_fraction < 1:
            raise UsageError(
                f"eval_fraction: must be in [0, 1), received {self.eval_fraction}"
            )

    def split(self, document: RawDocument) -> str:
        """Returns the split of a document, which depends only on its key."""
        key = (document.source, document.number)
        rng = KeyedRandom(self.pairs.seed, keyed_random.SPLIT, *key)
        return "eval" if rng.random() < self.eval_fraction else "train"
