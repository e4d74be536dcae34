"""ALBERT on TensorFlow and Keras: pretrain, load, fine-tune, serve.

Names are imported when they are first used, so that `import albert_tf` does not wait
for TensorFlow.
"""

import importlib

__version__ = "0.1.0"

_HOME = {
    "AlbertConfig": "config",
    "AlbertTokenizer": "text.sentencepiece",
    "AlbertBackbone": "models.backbone",
    "AlbertPretrainer": "models.pretrainer",
    "AlbertMaskedLM": "models.masked_lm",
    "AlbertTextClassifier": "models.classifiers",
    "AlbertTokenClassifier": "models.classifiers",
    "AlbertQuestionAnswering": "models.classifiers",
    "AlbertMultipleChoice": "models.classifiers",
    "create_optimizer": "optimizers.create",
    "make_pretraining_dataset": "data.batches.pretraining",
    "from_pretrained": "converters.load",
    "save_pretrained": "converters.load",
    "load_tokenizer": "text.load",
    "ByteBPETokenizer": "text.byte_bpe",
    "FillMask": "inference.fill_mask",
    "Classifier": "inference.classifier",
    "export_saved_model": "export.saved_model",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'albert_tf' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"albert_tf.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
