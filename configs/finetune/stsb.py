"""STS-B: how similar are two sentences, from 0 to 5?

Command:
    python tools/finetune.py --config=configs/finetune/stsb.py \
        --data_dir=glue --init_checkpoint=runs/mnli --output_dir=runs/stsb
Data: glue/STS-B, 5,749 training pairs, of GLUE, https://gluebenchmark.com.
Settings: Table 14 of the paper (arXiv:1909.11942).
Start: the paper starts from the model of MNLI, whose encoder is kept and whose head is
replaced. Run mnli.py first.
Hardware: one device of any kind. Where a batch does not fit,
--gradient_accumulation_steps cuts it, with the same result up to rounding. Not timed
here.
Published: correlation on dev 0.930 with ALBERT xxlarge after 1.5M steps of pretraining,
0.927 after 1M (the paper, Table 9, single models, medians of 5 runs). With base v2 and
Hugging Face's Trainer: Pearson 0.909 and Spearman 0.905, not from the model of MNLI
(public model cards, one run each).
Not run here: no released weights were available. --num_seeds=5 gives the paper's median
of 5 runs.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `FinetuneSettings`."""
    return {
        "task": "stsb",
        "learning_rate": 2e-5,
        "train_batch_size": 16,
        "dropout": 0.0,
        "num_train_steps": 3598,
        "num_warmup_steps": 214,
        "max_seq_length": 512,
    }
