"""Settings of create_pretraining_data."""

from collections.abc import Mapping

from albert_tf.data.corpus.sentences import check_language
from albert_tf.data.masking.config import MaskingConfig, check_probability
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.errors import UsageError


def make_record_config(options: Mapping) -> RecordConfig:
    """The settings of the records, from options named like the command's flags.

    `max_predictions_per_seq` None means `masked_lm_prob` of `max_seq_length`.
    """
    length = options["max_seq_length"]
    cuts = PairConfig(
        policy=options["pair_policy"],
        max_seq_length=length,
        short_seq_prob=options["short_seq_prob"],
        seed=options["random_seed"],
    )
    check_probability(options["masked_lm_prob"])
    predictions = options["max_predictions_per_seq"]
    if predictions is None:
        predictions = max(1, round(length * options["masked_lm_prob"]))
    elif predictions > length:
        raise UsageError(
            f"max_predictions_per_seq: must be at most max_seq_length, {length}, "
            f"got {predictions}"
        )
    if options["ngram"] < 1:
        raise UsageError(f"ngram: must be positive, got {options['ngram']}")
    mask = MaskingConfig(
        unit="whole_word" if options["do_whole_word_mask"] else "piece",
        max_ngram=options["ngram"],
        ngram_distribution="inverse" if options["favor_shorter_ngram"] else "uniform",
        masked_lm_prob=options["masked_lm_prob"],
        max_predictions_per_seq=predictions,
        mode="original" if options["pair_policy"] == "original" else "clean",
    )
    return RecordConfig(
        pairs=cuts,
        mask=mask,
        masking=options["masking"],
        language=check_language(options["language"]),
        dupe_factor=options["dupe_factor"],
        eval_fraction=options["eval_fraction"],
    )
