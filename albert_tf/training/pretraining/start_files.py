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
    if settings.preset or settings.albert_config_file:
        load_config(settings, None)
    load_run_tokenizer(settings)


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
