"""One call from the settings of `create_pretraining_data` to a finished data set."""

import dataclasses

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.prepare.settings import CreateSettings


def create_from_settings(settings: CreateSettings) -> dict:
    """Makes a data set as the command does.

    Returns:
        dict. The data card.
    """
    from albert_tf.text.load import load_tokenizer

    config = settings.record_config()
    tokenizer = load_tokenizer(
        settings.spm_model_file, settings.do_lower_case, settings.keep_accents
    )
    corpus = Corpus(settings.input_file, **settings.options)
    shared = {
        "num_shards": settings.num_shards,
        "overwrite": settings.overwrite,
        "flags": dataclasses.asdict(settings),
    }
    if settings.runner:
        from albert_tf.data.prepare import beam

        return beam.create_with_beam(
            corpus,
            settings.output_file,
            tokenizer,
            config,
            runner=settings.runner,
            beam_options=settings.beam_option,
            **shared,
        )
    from albert_tf.data.prepare import local

    return local.create_pretraining_data(
        corpus,
        settings.output_file,
        tokenizer,
        config,
        num_processes=settings.num_processes,
        drop_duplicates=settings.drop_duplicates,
        **shared,
    )
