"""WNUT17: rare and new names in posts.

Command:
    python tools/finetune.py --config=configs/finetune/wnut17.py \
        --data_dir=wnut17 --init_checkpoint=albert_base --output_dir=runs/wnut17
Data: wnut17train.conll, emerging.dev.conll and emerging.test.annotated,
https://github.com/leondz/emerging_entities_17.
Settings: not published for ALBERT, and our choice: those of conll2003.py, with a
smaller batch and more passes because there are only 3,394 training sentences.
Hardware: one device of any kind. Where a batch does not fit,
--gradient_accumulation_steps cuts it, with the same result up to rounding. Not timed
here.
Published: no score of ALBERT.
Not run here: no released weights were available.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `FinetuneSettings`."""
    return {
        "task": "wnut17",
        "learning_rate": 2e-5,
        "train_batch_size": 16,
        "num_train_epochs": 10.0,
        "max_seq_length": 128,
    }
