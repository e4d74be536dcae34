"""SWAG: which sentence comes next?

Command:
    python tools/finetune.py --config=configs/finetune/swag.py \
        --data_dir=swag --init_checkpoint=albert_base --output_dir=runs/swag
Data: train.csv and val.csv of https://github.com/rowanz/swagaf.
Settings: not published for ALBERT. These are of the command in transformers'
examples/pytorch/multiple-choice (run_swag_no_trainer.py): batch 32, 2e-5, 3 epochs,
length 128; warm-up 10%.
Hardware: one device of any kind. Where a batch does not fit,
--gradient_accumulation_steps cuts it, with the same result up to rounding. Not timed
here.
Published: no score of ALBERT. RoBERTa base has 83.4 there, with 5e-5 and batch 16.
Not run here: no released weights were available.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `FinetuneSettings`."""
    return {
        "task": "swag",
        "learning_rate": 2e-5,
        "train_batch_size": 32,
        "num_train_epochs": 3.0,
        "max_seq_length": 128,
    }
