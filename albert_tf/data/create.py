"""One call from the options of `create_pretraining_data` to a finished data set."""

from collections.abc import Mapping

from albert_tf.data.blocks import RecordConfig
from albert_tf.data.corpus import Corpus
from albert_tf.data.masking_config import MaskingConfig, check_probability
from albert_tf.data.pairs import PairConfig
from albert_tf.data.sentences import check_language
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


def create_from_options(options: Mapping) -> dict:
    """Makes a data set as the command does.

    Args:
        options: flag name -> value, all flags of `tools/create_pretraining_data.py`.

    Returns:
        The data card.
    """
    from albert_tf.text.load import load_tokenizer

    config = make_record_config(options)
    runner = options["runner"]
    if options["beam_option"] and not runner:
        raise UsageError("beam_option: needs --runner")
    tokenizer = load_tokenizer(options["spm_model_file"], options["do_lower_case"])
    corpus = Corpus(
        options["input_file"],
        options["input_format"],
        options["text_field"],
        options["on_bad_input"],
    )
    shared = {
        "num_shards": options["num_shards"],
        "overwrite": options["overwrite"],
        "flags": dict(options),
    }
    if runner:
        from albert_tf.data import beam

        if options["drop_duplicates"]:
            raise UsageError("drop_duplicates: not with --runner, documents are apart")
        return beam.create_with_beam(
            corpus,
            options["output_file"],
            tokenizer,
            config,
            runner=runner,
            beam_options=options["beam_option"],
            **shared,
        )
    from albert_tf.data import build

    return build.create_pretraining_data(
        corpus,
        options["output_file"],
        tokenizer,
        config,
        num_processes=options["num_processes"],
        drop_duplicates=options["drop_duplicates"],
        **shared,
    )
