"""CODAH: which ending makes sense?

Command:
    python tools/finetune.py --config=configs/finetune/codah.py \
        --data_dir=codah --init_checkpoint=albert_base --output_dir=runs/codah
Data: cv_split/fold_0 of https://github.com/Websail-NU/CODAH;
--data_dir=codah/cv_split/fold_1 and so on are the other folds. The usual score is the
mean of the five.
Settings: not published for ALBERT, and our choice: those of swag.py, with a smaller
batch and more passes because a fold is small.
Hardware: one device of any kind. Where a batch does not fit,
--gradient_accumulation_steps cuts it, with the same result up to rounding. Not timed
here.
Published: no score of ALBERT. BERT large has 67.5; chance is 25.
Not run here: no released weights were available.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `FinetuneSettings`."""
    return {
        "task": "codah",
        "learning_rate": 2e-5,
        "train_batch_size": 16,
        "num_train_epochs": 10.0,
        "max_seq_length": 128,
    }
