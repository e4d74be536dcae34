"""ALBERT base on one device: the paper's batch of 4096 in micro-batches of 8.

Command:
    python tools/pretrain.py --config=configs/pretrain/albert_base_one_gpu.py \
        --input_file=data/docs --eval_file=data/docs-eval \
        --spm_model_file=spiece.model --output_dir=runs/base
Hardware: one GPU or machine with 8 GB of memory (about 3 GB by our estimate). With
more, lower --gradient_accumulation_steps. A CPU runs it too, far too slowly to finish.
Expected result: not measured by us. The step is the same as that of
`albert_base_v2.py` with a 512th of the memory; gradient accumulation gives the same
weights as one large batch (tests/training/tensorflow/step_test.py).
"""

import pathlib
import runpy
from typing import Any

HERE = pathlib.Path(__file__).parent


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `PretrainSettings`."""
    base = runpy.run_path(str(HERE / "albert_base_v2.py"))["get_config"]()
    return {
        **base,
        "gradient_accumulation_steps": 512,
        "jit_compile": True,
        "iterations_per_loop": 10,
        "log_steps": 50,
        "eval_steps": 1000,
        "save_checkpoints_steps": 1000,
    }
