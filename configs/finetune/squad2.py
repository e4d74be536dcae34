"""SQuAD 2.0: find the answer in a paragraph, or say that there is none.

Command:
    python tools/finetune.py --config=configs/finetune/squad2.py \
        --data_dir=squad --init_checkpoint=albert_base --output_dir=runs/squad2
Data: squad/train-v2.0.json and squad/dev-v2.0.json,
https://rajpurkar.github.io/SQuAD-explorer. At least 5% of the training questions, whole
articles, are held back to choose the threshold.
Settings: Table 14 of the paper (arXiv:1909.11942). They are 3 passes over the
questions. The command in the original's README has other values: learning rate 5e-5,
length 384, 2 epochs, which is --learning_rate=5e-5 --max_seq_length=384
--num_train_steps=5430 --num_warmup_steps=543. An evaluation every 1,000 steps is our
choice.
Hardware: one device of any kind. Where a batch does not fit,
--gradient_accumulation_steps cuts it, with the same result up to rounding. Not timed
here.
Published, F1/exact on dev: 90.2/87.4 with ALBERT xxlarge after 1.5M steps, 89.9/87.2
after 1M (the paper, Table 10). The original's README has 82.1/79.3, 84.9/81.8,
87.9/84.1 and 89.8/86.9 for v2 base, large, xlarge and xxlarge. The threshold of these
scores was chosen on dev itself: compare them with `best_f1` and `best_exact`, not with
`f1` and `exact`.
Not run here: no released weights were available. --num_seeds=5 gives the paper's median
of 5 runs.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `FinetuneSettings`."""
    return {
        "task": "squad2",
        "learning_rate": 3e-5,
        "train_batch_size": 48,
        "dropout": 0.0,
        "num_train_steps": 8144,
        "num_warmup_steps": 814,
        "max_seq_length": 512,
        "doc_stride": 128,
        "max_query_length": 64,
        "eval_steps": 1000,
    }
