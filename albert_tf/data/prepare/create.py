"""One call from the options of `create_pretraining_data` to a finished data set."""

from collections.abc import Mapping

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.prepare.settings import make_record_config
from albert_tf.errors import UsageError


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
        from albert_tf.data.prepare import beam

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
    from albert_tf.data.prepare import local

    return local.create_pretraining_data(
        corpus,
        options["output_file"],
        tokenizer,
        config,
        num_processes=options["num_processes"],
        drop_duplicates=options["drop_duplicates"],
        **shared,
    )
