"""A small RoBERTa on docstrings: masked words alone, in full rows.

Commands:
    python tools/train_tokenizer.py --input_file=docstrings: \
        --output_model=small/spiece.model --vocab_size=4000
    python tools/create_pretraining_data.py --input_file=docstrings: \
        --output_file=small/roberta/docs --spm_model_file=small/spiece.model \
        --max_seq_length=64 --eval_fraction=0.02 --pair_policy=full_sentences
    python tools/pretrain.py --config=configs/pretrain/demo_roberta.py \
        --input_file=small/roberta/docs --eval_file=small/roberta/docs-eval \
        --spm_model_file=small/spiece.model --output_dir=runs/small_roberta
Hardware: 2 CPU cores.
Expected result: not measured by us. The encoder, steps and learning rate are those of
`demo.py`, on ALBERT's shared block, so that objectives can be compared.
"""

import pathlib
import runpy
from typing import Any

HERE = pathlib.Path(__file__).parent
# What is of ALBERT's masks and labels.
_NOT_HERE = ("pair_loss_weight", "ngram", "eval_ngram")


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `PretrainSettings`."""
    base = runpy.run_path(str(HERE / "demo.py"))["get_config"]()
    return {
        **{name: value for name, value in base.items() if name not in _NOT_HERE},
        "objective": "roberta",
    }
