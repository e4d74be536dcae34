"""MNLI: does a text entail another, contradict it, or neither?

Command:
    python tools/finetune.py --config=configs/finetune/mnli.py \
        --data_dir=glue --init_checkpoint=albert_base --output_dir=runs/mnli
Data: glue/MNLI, 392,702 training pairs, of GLUE, https://gluebenchmark.com.
Settings: Table 14 of the paper (arXiv:1909.11942). An evaluation every 1,000 steps is
our choice.
Hardware: one device of any kind. Where a batch does not fit,
--gradient_accumulation_steps cuts it, with the same result up to rounding. Not timed
here.
Published: accuracy on dev_matched 90.8 with ALBERT xxlarge after 1.5M steps of
pretraining, 90.4 after 1M (the paper, Table 9, single models, medians of 5 runs). The
original's README has 84.6, 86.5, 87.9 and 90.6 for v2 base, large, xlarge and xxlarge
(one run, best of all checkpoints). With base v2, others report 82.6 to 85.0.
Not run here: no released weights were available. --num_seeds=5 gives the paper's median
of 5 runs.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `FinetuneSettings`."""
    return {
        "task": "mnli",
        "learning_rate": 3e-5,
        "train_batch_size": 128,
        "dropout": 0.0,
        "num_train_steps": 10_000,
        "num_warmup_steps": 1000,
        "max_seq_length": 512,
        "eval_steps": 1000,
    }
