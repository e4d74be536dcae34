"""CoLA: is the sentence acceptable English?

Command:
    python tools/finetune.py --config=configs/finetune/cola.py \
        --data_dir=glue --init_checkpoint=albert_base --output_dir=runs/cola
Data: glue/CoLA, 8,551 training sentences, of GLUE, https://gluebenchmark.com.
Settings: Table 14 of the paper (arXiv:1909.11942).
Hardware: one device of any kind. Where a batch does not fit,
--gradient_accumulation_steps cuts it, with the same result up to rounding. Not timed
here.
Published: Matthews correlation on dev 0.714 with ALBERT xxlarge after 1.5M steps of
pretraining, 0.687 after 1M (the paper, Table 9, single models, medians of 5 runs). With
base v2 and Hugging Face's Trainer: Matthews correlation 0.549 (public model cards, one
run each).
Not run here: no released weights were available. --num_seeds=5 gives the paper's median
of 5 runs.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `FinetuneSettings`."""
    return {
        "task": "cola",
        "learning_rate": 1e-5,
        "train_batch_size": 16,
        "dropout": 0.0,
        "num_train_steps": 5336,
        "num_warmup_steps": 320,
        "max_seq_length": 512,
    }
