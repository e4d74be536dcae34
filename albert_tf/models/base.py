"""Defines the base of all models: a config, eager building, serialization.

Legend: `B` batch, `T` sequence.
"""

import inspect
import os
import warnings
from collections.abc import Iterable

import keras
import numpy as np
from keras import ops

import albert_tf
from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.errors import UntrainedWeightsWarning
from albert_tf.layers.configured import Configured
from albert_tf.layers.embedding import with_checked_segments

# Our input names, by the names of Hugging Face and of the original.
_OTHER_NAMES = {
    features.INPUT_IDS: features.TOKEN_IDS,
    "token_type_ids": features.SEGMENT_IDS,
    "attention_mask": features.PADDING_MASK,
    features.INPUT_MASK: features.PADDING_MASK,
}

# Attributes set after construction, and stored in the config of a model.
_STATE = ("labels", "problem_type", "max_seq_length", "task", "pad_id")


class ConfiguredModel(Configured, keras.Model):
    """A Keras model built from an `AlbertConfig`, its weights included.

    Args:
        seed: int or None. Seed of the initial values; None uses the generator that
            `keras.utils.set_random_seed` seeds.

    Attributes:
        preprocessor: `Preprocessor` or None. Turns the texts that `fit`, `evaluate` and
            `predict` receive into inputs. Set by `from_pretrained`.
        labels: sequence of str or None. Names of the classes.
        max_seq_length: int or None. Length of rows in fine-tuning.
        task: dict or None. The task that the model was fine-tuned on; see
            `tasks.saved`.
        loaded_from: str or None. Local path of the files that `from_pretrained` read.
    """

    seed_step = 100_000  # far from the seeds of the parts of a part
    input_rank = 2
    needed_inputs: tuple[str, ...] = ()  # in addition to the backbone's

    def __init__(self, config: AlbertConfig, *, seed: int | None = None, **kwargs):
        if not isinstance(config, AlbertConfig):
            raise ValueError(
                f"config must be an AlbertConfig, received {type(config).__name__}"
            )
        # Keras would round float ids to the precision of the dtype policy.
        super().__init__(autocast=False, **kwargs)
        self.config = config
        self.seed = seed
        self.labels = None
        self.problem_type = None
        self.max_seq_length = None
        self.task = None
        self._pad_id = None
        self._untrained = frozenset()
        self.preprocessor = None
        self.loaded_from = None

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike, **kwargs) -> "ConfiguredModel":
        """Loads a model of this class from a folder or checkpoint of any format.

        Args:
            path: str or path. As for `albert_tf.from_pretrained`.
            **kwargs: Other arguments of `albert_tf.from_pretrained`, except `head`.
        """
        return albert_tf._loader().from_pretrained_as(cls, path, **kwargs)

    def save_pretrained(self, path: str | os.PathLike, *args, **kwargs) -> None:
        """Writes the model as a folder; see `albert_tf.save_pretrained`."""
        albert_tf._loader().save_pretrained(self, path, *args, **kwargs)

    @property
    def pad_id(self) -> int | None:
        """The token id that pads rows; used only for inputs without `padding_mask`.

        A config does not contain it, since vocabularies differ (0 for ALBERT and BERT,
        1 for byte-level BPE, where 0 is `[CLS]`). A model loaded together with a
        tokenizer uses the tokenizer's; others have None until it is set.
        """
        return getattr(self, "backbone", self)._pad_id

    @pad_id.setter
    def pad_id(self, value: int | None) -> None:
        getattr(self, "backbone", self)._pad_id = value

    @property
    def untrained_weights(self) -> list[str]:
        """Names of weights that were neither loaded nor trained."""
        return sorted(self._untrained)

    def mark_untrained(self, names: Iterable[str] | None = None) -> None:
        """Marks weights, by default all, as having initial values.

        `predict` warns once about them until `fit`.
        """
        self._untrained = frozenset(weight_names(self) if names is None else names)
        self._has_warned = False

    def fit(self, x=None, y=None, *args, **kwargs):
        """Trains the model, as `keras.Model.fit` does, on inputs or on texts.

        With a `preprocessor`, `x` and the validation data may be texts, as described
        in `albert_tf.Preprocessor`, or a `tf.data.Dataset` of texts and labels.

        Raises:
            UsageError: If the model has no such label.
        """
        # By name, including positional arguments.
        arguments = inspect.signature(super().fit).bind(x, y, *args, **kwargs).arguments
        data = arguments.get("validation_data")
        if isinstance(data, tuple | list):
            x_dev, *labels = data
            labels[:1] = map(self._targets, labels[:1])
            arguments["validation_data"] = (self._encoded(x_dev), *labels)
        elif data is not None:
            arguments["validation_data"] = self._encoded(data)
        weights = weight_names(self) if self._untrained else {}
        before = {k: ops.convert_to_numpy(weights[k]) for k in self._untrained}
        arguments |= {"x": self._encoded(x), "y": self._targets(y)}
        history = super().fit(**arguments)
        # Weights that the loss does not read keep their values.
        after = {k: ops.convert_to_numpy(weights[k]) for k in before}
        self.mark_untrained(k for k in before if (before[k] == after[k]).all())
        return history

    def compile_from_config(self, config):
        """Compiles as the file says; `jit_compile` is "auto" again.

        Keras stores what "auto" came to where the model was compiled: False by
        TensorFlow on a CPU, which on JAX means a training without any compilation.
        """
        super().compile_from_config({**config, "jit_compile": "auto"})

    def load_weights(self, filepath, skip_mismatch=False, **kwargs):
        """Loads all weights, as `keras.Model.load_weights`, unless some may differ."""
        super().load_weights(filepath, skip_mismatch=skip_mismatch, **kwargs)
        if not skip_mismatch:
            self.mark_untrained(())

    def evaluate(self, x=None, y=None, *args, **kwargs):
        """Computes the metrics, as `keras.Model.evaluate`, of inputs or texts."""
        y = self._targets(y)
        return super().evaluate(self._encoded(x), y, *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        """Returns the outputs, as `keras.Model.predict`, for inputs or texts."""
        if self._untrained and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"predict computes with initial values of "
                f"{', '.join(self.untrained_weights)}, which were never trained",
                UntrainedWeightsWarning,
                stacklevel=2,
            )
        return super().predict(self._encoded(x), *args, **kwargs)

    def export(self, filepath, *args, input_signature=None, **kwargs):
        """Exports the model, as `keras.Model.export`, with int32 inputs of any length.

        `albert_tf.export_saved_model` writes a model that takes texts.

        Args:
            filepath: str or path. Where to write.
            input_signature: See `keras.Model.export`. Default: a dict of `token_ids`,
                `segment_ids`, `padding_mask` and all other required inputs.
            args, kwargs: See `keras.Model.export`.
        """
        if input_signature is None:
            # Keras would derive it from `build`, which these models have already run.
            shape = (None,) * self.input_rank
            names = (*features.ROWS, *self.needed_inputs)
            input_signature = [
                {n: keras.InputSpec(shape=shape, dtype="int32", name=n) for n in names}
            ]
        super().export(filepath, *args, input_signature=input_signature, **kwargs)

    @property
    def preprocessor(self):
        return self._preprocessor

    @preprocessor.setter
    def preprocessor(self, value):
        if value is not None:
            value = value.for_segments(self.config.num_segments)
        self._preprocessor = value

    def _encoded(self, x):
        x = x if self.preprocessor is None else self.preprocessor.encode_texts(x)
        return with_checked_segments(x, self.config.type_vocab_size)

    def _targets(self, y):
        """Returns labels as an array, as Keras needs them with a dict of inputs."""
        if hasattr(y, "to_numpy"):  # pandas
            return y.to_numpy()
        # A list of arrays has one array for each output.
        is_labels = isinstance(y, list) and y
        is_labels = is_labels and (isinstance(y[0], list) or not np.ndim(y[0]))
        return np.asarray(y) if is_labels else y

    def save_assets(self, dir_path: str) -> None:
        """Writes the preprocessor into a `.keras` file; called by Keras."""
        if self.preprocessor is not None:
            self.preprocessor.save_assets(dir_path)

    def load_assets(self, dir_path: str | None) -> None:
        """Reads the files of `save_assets`, if there are any; called by Keras."""
        if dir_path is not None:
            preprocessor = albert_tf._loader().Preprocessor.load_assets(dir_path)
            self.preprocessor = preprocessor

    def get_config(self):
        config = {
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "config": self.config.to_dict(),
            "seed": self.seed,
        }
        # Only attributes set after construction, so that other configs stay unchanged.
        layers = _layers_by_name(self).items()
        # Layers without weights have no stable name.
        frozen = [name for name, x in layers if x.weights and not x.trainable]
        state = {"frozen": frozen, **{name: getattr(self, name) for name in _STATE}}
        state["labels"] = list(self.labels or ())
        return {**config, **{k: x for k, x in state.items() if x not in (None, [])}}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        config["config"] = AlbertConfig.from_dict(config["config"])
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        frozen = config.pop("frozen", ())
        state = {name: config.pop(name) for name in _STATE if name in config}
        model = cls(**config)
        if labels := state.pop("labels", None):
            model.labels = tuple(labels)
        for name, value in state.items():
            setattr(model, name, value)
        layers = _layers_by_name(model)
        for name in frozen:
            layers[name].trainable = False
        return model


def _layers_by_name(model: keras.Model) -> dict[str, keras.layers.Layer]:
    """Returns the model, under "", and its layers, including its backbone's."""
    layers = {"": model, **{layer.name: layer for layer in model.layers}}
    backbone = getattr(model, "backbone", None)
    for layer in backbone.layers if backbone is not None else ():
        layers[f"backbone/{layer.name}"] = layer
    return layers


def as_inputs(inputs, *needed: str) -> dict:
    """Returns the dict of input tensors; a single tensor becomes `token_ids`.

    Whole numbers given as floats become int32. Keras itself passes them in `fit` under
    a strategy, where it builds models with float32 placeholders.

    Raises:
        ValueError: If a needed key is missing, or a key is another package's name for
            an input, which would be ignored.
    """
    if not isinstance(inputs, dict):
        if isinstance(inputs, (list, tuple)):
            raise ValueError("inputs must be a dict or one tensor, received a list")
        inputs = {features.TOKEN_IDS: inputs}
    for key, ours in _OTHER_NAMES.items():
        if key in inputs:
            raise ValueError(f"inputs has the key {key!r}, which is {ours!r} here")
    for key in (features.TOKEN_IDS, *needed):
        if key not in inputs:
            received = ", ".join(sorted(map(str, inputs)))
            raise ValueError(f"inputs must have {key!r}, received {received}")
    is_float = lambda x: "float" in str(getattr(x, "dtype", ""))  # noqa: E731
    return {k: ops.cast(x, "int32") if is_float(x) else x for k, x in inputs.items()}


def without_padding(token_ids, pad_id: int):
    """Returns the mask of rows that are padded at the end.

    It is int32 `[B, T]`: 0 for the last ids of a row if they equal `pad_id`, else 1.
    """
    real = ops.cast(ops.not_equal(token_ids, pad_id), "int32")
    later = ops.flip(ops.cumsum(ops.flip(real, axis=1), axis=1), axis=1)
    return ops.cast(later > 0, "int32")


def weight_names(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the model's weights by canonical names, in the order of creation.

    A name is the variable's path without the model's own name, which users choose, such
    as `backbone/encoder/attention_0/query/kernel`. A model inside it, such as
    `generator`, adds its attribute as a prefix. A weight that two of them share has the
    first one's name. Seeds of random generators are not weights.
    """
    # Keras starts a path with the name of the model that built the variable: a
    # backbone's variables begin with "backbone", a head's with the model's name.
    names, inside = {}, set()
    for part in ("backbone", "generator"):
        inner = getattr(model, part, None)
        for name, variable in weight_names(inner).items() if inner is not None else ():
            if id(variable) not in inside:
                names[f"{part}/{name}"] = variable
                inside.add(id(variable))
    for variable in model.weights:
        if "seed_generator" not in variable.path and id(variable) not in inside:
            names[variable.path.partition("/")[2]] = variable
    return names
