"""RACE with a model of version 1: exam questions about a text.

Command:
    python tools/finetune.py --config=configs/finetune/race.py \
        --data_dir=RACE --init_checkpoint=albert_base --output_dir=runs/race
Data: RACE/{train,dev,test}/{middle,high}/*.txt, 87,866 training questions,
https://www.cs.cmu.edu/~glai1/data/race.
Settings: Table 14 of the paper (arXiv:1909.11942). With weights of version 2 these
values diverge: use race_v2.py. An evaluation every 1,000 steps is our choice.
Hardware: one device of any kind. Where a batch does not fit,
--gradient_accumulation_steps cuts it, with the same result up to rounding. Not timed
here.
Published: accuracy 86.5 with ALBERT xxlarge after 1.5M steps (middle 89.0, high 85.5),
86.0 after 1M (88.2, 85.1); the paper, Table 10. The original's README has 64.0, 68.5,
74.8 and 86.5 for v1 base, large, xlarge and xxlarge.
Not run here: no released weights were available. --num_seeds=5 gives the paper's median
of 5 runs.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `FinetuneSettings`."""
    return {
        "task": "race",
        "learning_rate": 2e-5,
        "train_batch_size": 32,
        "dropout": 0.1,
        "num_train_steps": 12_000,
        "num_warmup_steps": 1000,
        "max_seq_length": 512,
        "max_qa_length": 128,
        "eval_steps": 1000,
    }
