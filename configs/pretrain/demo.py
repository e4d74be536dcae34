"""A small ALBERT on docstrings, the pretraining step of `make demo`.

Command (run by `tools/demo.py` after the commands that make its data):
    python tools/pretrain.py --config=configs/pretrain/demo.py \
        --input_file=demo_output/data/docs --eval_file=demo_output/data/docs-eval \
        --spm_model_file=demo_output/spiece.model --output_dir=demo_output/pretrain
Hardware: 2 CPU cores.
Expected result: see docs/results.md.
"""

import pathlib
from typing import Any

HERE = pathlib.Path(__file__).parent


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `PretrainSettings`."""
    return {
        "albert_config_file": str(HERE / "demo_albert_config.json"),
        "max_seq_length": 64,
        # More masks, of single words: twice the signal per step, easier to learn.
        "max_predictions_per_seq": 19,
        "masked_lm_prob": 0.3,
        "ngram": 1,
        # The order of segments is learned after the words; before, its loss is noise.
        "pair_loss_weight": 0.3,
        # Accuracies are those of the original's masks.
        "eval_masked_lm_prob": 0.15,
        "eval_ngram": 3,
        # 400 steps of 16 examples take as long as 200 of 32, and teach more.
        "train_batch_size": 16,
        "optimizer": "adamw",
        "learning_rate": 2e-3,
        "learning_rate_schedule": "linear",
        "num_train_steps": 3400,
        # Without bias correction, Adam's first updates are several times too large.
        "num_warmup_steps": 800,
        "jit_compile": True,
        "iterations_per_loop": 50,
        "log_steps": 100,
        "eval_steps": 850,
        "eval_batch_size": 100,
        "max_eval_steps": 0,
        "save_checkpoints_steps": 850,
    }
