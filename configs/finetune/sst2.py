"""SST-2: is the sentence of a film review positive?

Command:
    python tools/finetune.py --config=configs/finetune/sst2.py \
        --data_dir=glue --init_checkpoint=albert_base --output_dir=runs/sst2
Data: glue/SST-2, 67,349 training phrases and sentences, of GLUE,
https://gluebenchmark.com.
Settings: Table 14 of the paper (arXiv:1909.11942).
Hardware: one device of any kind. Where a batch does not fit,
--gradient_accumulation_steps cuts it, with the same result up to rounding. Not timed
here.
Published: accuracy on dev 96.9 with ALBERT xxlarge after 1.5M steps of pretraining,
96.8 after 1M (the paper, Table 9, single models, medians of 5 runs). The original's
README has 92.9, 94.9, 95.4 and 96.8 for v2 base, large, xlarge and xxlarge (one run,
best of all checkpoints).
Not run here: no released weights were available. --num_seeds=5 gives the paper's median
of 5 runs.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `FinetuneSettings`."""
    return {
        "task": "sst2",
        "learning_rate": 1e-5,
        "train_batch_size": 32,
        "dropout": 0.0,
        "num_train_steps": 20_935,
        "num_warmup_steps": 1256,
        "max_seq_length": 512,
    }
