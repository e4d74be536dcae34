"""CoNLL-2003: names of people, organizations and places.

Command:
    python tools/finetune.py --config=configs/finetune/conll2003.py \
        --data_dir=conll2003 --init_checkpoint=albert_base \
        --output_dir=runs/conll2003
Data: eng.train, eng.testa and eng.testb, or train.txt, valid.txt and test.txt,
https://www.clips.uantwerpen.be/conll2003/ner.
Settings: not published for ALBERT. These are of the command in transformers'
examples/pytorch/token-classification (run_ner_no_trainer.py): batch 32, 2e-5, 3 epochs,
length 128; warm-up 10%.
Hardware: one device of any kind. Where a batch does not fit,
--gradient_accumulation_steps cuts it, with the same result up to rounding. Not timed
here.
Published: none by the authors. Users report F1 of 93 to 94 for v2 base to xlarge (the
split is not said), and for v1 xxlarge 95.3 on dev and 91.4 on test.
Not run here: no released weights were available.
"""

from typing import Any


def get_config() -> dict[str, Any]:
    """Returns settings by the names of `FinetuneSettings`."""
    return {
        "task": "conll2003",
        "learning_rate": 2e-5,
        "train_batch_size": 32,
        "num_train_epochs": 3.0,
        "max_seq_length": 128,
    }
