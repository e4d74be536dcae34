"""With `--ema_decay`, the averages are what is evaluated, kept and saved."""

import numpy as np
import pytest

from albert_tf.converters.load import from_pretrained, save_pretrained
from albert_tf.errors import UsageError
from albert_tf.models.base import weight_names
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.training import finetune
from albert_tf.training.callbacks import KeepWeights
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.tensorflow.checkpoints import WeightAverages
from tests.training.finetuning.runs import CONFIG, SPM_MODEL, run, write_table


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["last", "best"])
def test_averages_are_what_is_kept(tmp_path, monkeypatch, keep):
    start = tmp_path / "start"
    model = AlbertPretrainer(CONFIG, seed=3)
    save_pretrained(model, start, tokenizer=AlbertTokenizer(SPM_MODEL))
    kept, finished = {}, {}
    save, trained = KeepWeights.save, finetune.Finetuning.trained
    replace = WeightAverages.replace_weights

    def save_and_copy(self, step):
        save(self, step)
        kept[step] = {k: v.numpy() for k, v in self._weights.items()}

    def copy_and_replace(self):
        finished.update({k: v.numpy() for k, v in self.averages.items()})
        replace(self)

    def trained_and_copy(run, averages, last):
        trained(run, averages, last)
        finished["best"] = run.selection.best_step

    monkeypatch.setattr(KeepWeights, "save", save_and_copy)
    monkeypatch.setattr(WeightAverages, "replace_weights", copy_and_replace)
    monkeypatch.setattr(finetune.Finetuning, "trained", trained_and_copy)
    run(
        tmp_path / "run",
        init_checkpoint=str(start),
        train_file=write_table(tmp_path / "train.tsv", 48, seed=1),
        dev_file=write_table(tmp_path / "dev.tsv", 16, seed=2),
        max_seq_length=24,
        num_train_steps=6,
        eval_steps=2,
        ema_decay=0.7,
        keep=keep,
    )
    best = finished.pop("best")
    expected = finished if keep == "last" else kept[best]
    saved = weight_names(from_pretrained(tmp_path / "run"))
    for name in finished:
        np.testing.assert_array_equal(saved[name].numpy(), expected[name])
    assert bool(kept) == (keep == "best")
    if 6 in kept:  # the averages of that step, not the weights
        np.testing.assert_array_equal(
            kept[6]["classifier/kernel"], finished["classifier/kernel"]
        )


def test_nonsense_is_refused():
    settings = FinetuneSettings(output_dir="b", task="cola", ema_decay=1.0)
    with pytest.raises(UsageError, match=r"ema_decay must be in \[0, 1\), received 1"):
        settings.check_values()
