"""What kind of records to make."""

from dataclasses import dataclass, field

from albert_tf.data import keyed_random
from albert_tf.data.corpus.corpus import RawDocument
from albert_tf.data.keyed_random import KeyedRandom
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.errors import UsageError

SPLITS = ("train", "eval")


@dataclass(frozen=True)
class RecordConfig:
    """What records are made of text, whoever runs it.

    Args:
        pairs: how examples are cut.
        mask: how they are masked; with dynamic records only the card uses it.
        masking: "dynamic" (records without masks) or "static" (the original's).
        language: of the sentence splitter.
        dupe_factor: passes over each document, with other random choices each.
        eval_fraction: share of the documents kept for evaluation.
        sample_masks: whether dynamic records are masked now and then for the card.
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
        """Which split a document belongs to; a function of its key alone."""
        key = (document.source, document.number)
        rng = KeyedRandom(self.pairs.seed, keyed_random.SPLIT, *key)
        return "eval" if rng.random() < self.eval_fraction else "train"
