"""The files that a pretraining run starts from, looked at without TensorFlow."""

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint.checkpoint import Checkpoint
from albert_tf.converters.detect import check_path
from albert_tf.errors import UsageError
from albert_tf.training.pretraining.settings import PretrainSettings
from albert_tf.training.pretraining.tokenizer import load_run_tokenizer


def check_files(settings: PretrainSettings) -> None:
    """Raises what `pretrain` raises if config, tokenizer, records or weights lack."""
    if settings.init_checkpoint:
        check_path(settings.init_checkpoint)
    tokenizer = load_run_tokenizer(settings)
    if settings.preset or settings.albert_config_file:
        check_sizes(settings, load_config(settings, None), tokenizer)


def check_sizes(settings: PretrainSettings, config: AlbertConfig, tokenizer) -> None:
    """Checks that rows and tokens fit the model.

    Raises:
        UsageError: If not.
    """
    if settings.max_seq_length > config.max_position_embeddings:
        raise UsageError(
            f"--max_seq_length must be at most max_position_embeddings="
            f"{config.max_position_embeddings}, received {settings.max_seq_length}"
        )
    if tokenizer.vocab_size > config.vocab_size:
        raise UsageError(
            f"--spm_model_file={settings.spm_model_file}: must have at most as many "
            f"pieces as the config's vocab_size={config.vocab_size}, has "
            f"{tokenizer.vocab_size}"
        )


def load_config(settings: PretrainSettings, start: Checkpoint | None) -> AlbertConfig:
    """Returns the model's config, from a preset, a file or the initial checkpoint."""
    if settings.preset:
        try:
            return AlbertConfig.from_preset(settings.preset)
        except ValueError as e:
            raise UsageError(f"--preset={settings.preset}: {e}") from None
    if start is not None and not settings.albert_config_file:
        return start.config
    return AlbertConfig.from_json(settings.albert_config_file)
