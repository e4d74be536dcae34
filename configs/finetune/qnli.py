"""QNLI: does the sentence answer the question?

Command:
    python tools/finetune.py --config=configs/finetune/qnli.py \
        --data_dir=glue --init_checkpoint=albert_base --output_dir=runs/qnli
Data: glue/QNLI, version 2, 104,743 training pairs, of GLUE, https://gluebenchmark.com.
Settings: Table 14 of the paper (arXiv:1909.11942).
Hardware: one device of any kind. Where a batch does not fit,
--gradient_accumulation_steps cuts it, with the same result up to rounding. Not timed
here.
Published: accuracy on dev 95.3 with ALBERT xxlarge after 1.5M steps of pretraining,
95.2 after 1M (the paper, Table 9, single models, medians of 5 runs). With base v2 and
Hugging Face's Trainer: accuracy 91.1 to 91.4 (public model cards, one run each).
Not run here: no released weights were available. --num_seeds=5 gives the paper's median
of 5 runs.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `FinetuneSettings`."""
    return {
        "task": "qnli",
        "learning_rate": 1e-5,
        "train_batch_size": 32,
        "dropout": 0.0,
        "num_train_steps": 33_112,
        "num_warmup_steps": 1986,
        "max_seq_length": 512,
    }
