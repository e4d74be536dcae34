"""QQP: do two questions of Quora ask the same?

Command:
    python tools/finetune.py --config=configs/finetune/qqp.py \
        --data_dir=glue --init_checkpoint=albert_base --output_dir=runs/qqp
Data: glue/QQP, 363,849 training pairs, 3 of them malformed, of GLUE,
https://gluebenchmark.com.
Settings: Table 14 of the paper (arXiv:1909.11942). An evaluation every 1,000 steps is
our choice.
Hardware: one device of any kind. Where a batch does not fit,
--gradient_accumulation_steps cuts it, with the same result up to rounding. Not timed
here.
Published: accuracy on dev 92.2 with ALBERT xxlarge after 1.5M steps of pretraining,
92.0 after 1M (the paper, Table 9, single models, medians of 5 runs). With base v2 and
Hugging Face's Trainer: accuracy 90.5 and F1 87.2 (public model cards, one run each).
Not run here: no released weights were available. --num_seeds=5 gives the paper's median
of 5 runs.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `FinetuneSettings`."""
    return {
        "task": "qqp",
        "learning_rate": 5e-5,
        "train_batch_size": 128,
        "dropout": 0.1,
        "num_train_steps": 14_000,
        "num_warmup_steps": 1000,
        "max_seq_length": 512,
        "eval_steps": 1000,
    }
