"""ALBERT on TensorFlow and Keras: pretrain, load, fine-tune, serve.

Names are imported when they are first used, so that `import albert_tf` does not wait
for TensorFlow. For the same reason, Keras is given stand-ins for the classes of this
package, which import the class that a saved file names.
"""

import importlib
import importlib.abc
import importlib.util
import sys

__version__ = "0.1.0"

_MODELS = {
    "AlbertBackbone": "models.backbone",
    "AlbertPretrainer": "models.masked_lm",
    "AlbertDiscriminator": "models.discriminator",
    "AlbertMaskedLM": "models.masked_lm",
    "SpanBertPretrainer": "models.masked_lm",
    "AlbertTextClassifier": "models.classifiers",
    "AlbertTokenClassifier": "models.classifiers",
    "AlbertQuestionAnswering": "models.classifiers",
    "AlbertBeamQuestionAnswering": "models.question_answering",
    "AlbertMultipleChoice": "models.classifiers",
    "AlbertTextEmbedder": "models.embedder",
    "ElectraPretrainer": "models.electra",
}
_LOSSES = {
    "ContrastiveLoss": "objectives.embedding",
    "CoSentLoss": "objectives.embedding",
    "CosineSimilarityLoss": "objectives.embedding",
}
_HOME = {
    "AlbertConfig": "config",
    "UntrainedWeightsWarning": "errors",
    "AlbertTokenizer": "text.sentencepiece",
    **_MODELS,
    "create_optimizer": "optimizers.create",
    **_LOSSES,
    "make_pretraining_dataset": "data.batches.pretraining",
    "from_pretrained": "converters.load",
    "save_pretrained": "converters.load",
    "load_tokenizer": "text.load",
    "Preprocessor": "text.preprocessor",
    "ByteBPETokenizer": "text.byte_bpe",
    "WordPieceTokenizer": "text.wordpiece",
    "FillMask": "inference.fill_mask",
    "Classifier": "inference.classifier",
    "Embedder": "inference.embedder",
    "QuestionAnswerer": "inference.question_answerer",
    "TokenClassifier": "inference.token_classifier",
    "MultipleChoice": "inference.multiple_choice",
    "inspect_model": "inference.inspection",
    "export_saved_model": "export.saved_model",
}

# Classes registered with Keras, which finds them by these names in `.keras` files.
_SAVED_BY_KERAS = {
    **_MODELS,
    **_LOSSES,
    "AdamW": "optimizers.adamw",
    "AnswerEnd": "layers.heads",
    "Answerability": "layers.heads",
    "DepthWeights": "layers.encoder",
    "DiscriminatorHead": "layers.heads",
    "Dropout": "layers.dropout",
    "ExitHead": "layers.heads",
    "FactorizedEmbedding": "layers.embedding",
    "FeedForward": "layers.encoder",
    "LayerNorm": "layers.gradients",
    "Lamb": "optimizers.lamb",
    "MaskedLMHead": "layers.heads",
    "SelfAttention": "layers.attention",
    "SharedEncoder": "layers.encoder",
    "SpanBoundaryHead": "layers.heads",
    "TruncatedNormal": "layers.configured",
    "WarmupCosineDecay": "optimizers.schedules",
    "WarmupLinearDecay": "optimizers.schedules",
    "WarmupPolynomialDecay": "optimizers.schedules",
    "WarmupTrapezoid": "optimizers.schedules",
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


def _loader():
    """Returns `converters.load`, which classes of lower layers must not import."""
    return importlib.import_module(f"albert_tf.{_HOME['from_pretrained']}")


def _register(keras) -> None:
    """Registers a stand-in for each class that is not imported yet."""
    registered = keras.saving.get_custom_objects()
    for name, home in _SAVED_BY_KERAS.items():
        registered.setdefault(f"albert_tf>{name}", _stand_in(name, home))


def _stand_in(name: str, home: str) -> type:
    """Returns a class that Keras can deserialize; the real one replaces it."""

    def from_config(cls, config):
        module = importlib.import_module(f"albert_tf.{home}")
        return getattr(module, name).from_config(config)

    return type(name, (), {"from_config": classmethod(from_config)})


class _AroundImport(importlib.abc.MetaPathFinder):
    """Lets a function execute the first import of a package, given the module."""

    def __init__(self, name: str, run):
        self._name, self._run = name, run
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname, path, target=None):
        """Finds the package as usual, once."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: self._run(execute, module)
        return spec


if "keras" in sys.modules:
    _register(sys.modules["keras"])
else:
    _AroundImport("keras", lambda execute, keras: (execute(keras), _register(keras)))
