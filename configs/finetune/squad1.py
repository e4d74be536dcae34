"""SQuAD 1.1: find the answer in a paragraph.

Command:
    python tools/finetune.py --config=configs/finetune/squad1.py \
        --data_dir=squad --init_checkpoint=albert_base --output_dir=runs/squad1
Data: squad/train-v1.1.json and squad/dev-v1.1.json,
https://rajpurkar.github.io/SQuAD-explorer.
Settings: Table 14 of the paper (arXiv:1909.11942). The steps are 2 passes over the
questions; windows are more. An evaluation every 1,000 steps is our choice.
Hardware: one device of any kind. Where a batch does not fit,
--gradient_accumulation_steps cuts it, with the same result up to rounding. Not timed
here.
Published, F1/exact on dev: 94.8/89.3 with ALBERT xxlarge after 1.5M steps, 94.8/89.2
after 1M (the paper, Table 10). The original's README has 90.2/83.2, 91.8/85.2,
92.9/86.4 and 94.6/89.1 for v2 base, large, xlarge and xxlarge (one run, best of all
checkpoints).
Not run here: no released weights were available. --num_seeds=5 gives the paper's median
of 5 runs.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `FinetuneSettings`."""
    return {
        "task": "squad1",
        "learning_rate": 5e-5,
        "train_batch_size": 48,
        "dropout": 0.0,
        "num_train_steps": 3649,
        "num_warmup_steps": 365,
        "max_seq_length": 384,
        "doc_stride": 128,
        "max_query_length": 64,
        "eval_steps": 1000,
    }
