"""ALBERT base as in the paper: batch 4096, 125,000 steps of LAMB.

Command:
    python tools/pretrain.py --config=configs/pretrain/albert_base_v2.py \
        --input_file=gs://bucket/data/wiki-books \
        --eval_file=gs://bucket/data/wiki-books-eval \
        --spm_model_file=gs://bucket/30k-clean.model \
        --output_dir=gs://bucket/runs/base --backend=jax --distribution=tpu
Data: 16 GB of Wikipedia and books, `create_pretraining_data` with its defaults.
Hardware: the authors used 64 to 512 cores of TPU v3.
Expected result: the authors report (paper, Tables 2 and 5) 54.0% MLM and 86.5% SOP
accuracy, MNLI 81.6. Not run by us, for lack of that hardware. Every setting below
is from the paper's section 4.1 or the defaults of the original's `run_pretraining.py`.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `PretrainSettings`."""
    return {
        "preset": "albert_base_v2",
        "max_seq_length": 512,
        "max_predictions_per_seq": 77,
        "train_batch_size": 4096,
        "optimizer": "lamb",
        "learning_rate": 0.00176,
        "num_train_steps": 125_000,
        "num_warmup_steps": 3_125,
        "weight_decay_rate": 0.01,
        "precision": "bfloat16",
        "iterations_per_loop": 1000,
        "log_steps": 1000,
        "eval_steps": 5000,
        "save_checkpoints_steps": 5000,
        "deterministic": False,
    }
