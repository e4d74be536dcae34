"""RTE: does a text entail another?

Command:
    python tools/finetune.py --config=configs/finetune/rte.py \
        --data_dir=glue --init_checkpoint=runs/mnli --output_dir=runs/rte
Data: glue/RTE, 2,490 training pairs, of GLUE, https://gluebenchmark.com.
Settings: Table 14 of the paper (arXiv:1909.11942).
Start: the paper starts from the model of MNLI, whose encoder is kept and whose head is
replaced. Run mnli.py first.
Hardware: one device of any kind. Where a batch does not fit,
--gradient_accumulation_steps cuts it, with the same result up to rounding. Not timed
here.
Published: accuracy on dev 89.2 with ALBERT xxlarge after 1.5M steps of pretraining,
88.1 after 1M (the paper, Table 9, single models, medians of 5 runs). With base v2 and
Hugging Face's Trainer: accuracy 68.6 to 75.8, not from the model of MNLI (public model
cards, one run each).
Not run here: no released weights were available. --num_seeds=5 gives the paper's median
of 5 runs.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `FinetuneSettings`."""
    return {
        "task": "rte",
        "learning_rate": 3e-5,
        "train_batch_size": 32,
        "dropout": 0.1,
        "num_train_steps": 800,
        "num_warmup_steps": 200,
        "max_seq_length": 512,
    }
