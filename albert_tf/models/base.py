"""Defines what all models share: a config, eager building, serialization."""

import warnings
from collections.abc import Iterable

import keras

from albert_tf import features
from albert_tf.config import AlbertConfig

# Input names of Hugging Face and of the original -> ours.
_OTHER_NAMES = {
    features.INPUT_IDS: features.TOKEN_IDS,
    "token_type_ids": features.SEGMENT_IDS,
    "attention_mask": features.PADDING_MASK,
    features.INPUT_MASK: features.PADDING_MASK,
}


class ConfiguredModel(keras.Model):
    """A Keras model built from an `AlbertConfig`, its weights included.

    Args:
        config: `AlbertConfig`.
        seed: int or None. Seed of the initial values; None uses the generator that
            `keras.utils.set_random_seed` seeds.
    """

    def __init__(self, config: AlbertConfig, *, seed: int | None = None, **kwargs):
        if not isinstance(config, AlbertConfig):
            raise ValueError(
                f"config must be an AlbertConfig, received {type(config).__name__}"
            )
        super().__init__(**kwargs)
        self.config = config
        self.seed = seed
        self.labels = None
        self.problem_type = None
        self._untrained = frozenset()

    @property
    def untrained_weights(self) -> list[str]:
        """Names of weights that were neither loaded nor trained."""
        return sorted(self._untrained)

    def mark_untrained(self, names: Iterable[str]) -> None:
        """Marks weights as having initial values; `fit` and `predict` warn once."""
        self._untrained = frozenset(names)
        self._has_warned = False

    def fit(self, *args, **kwargs):
        self._warn_untrained("fit starts them from")
        history = super().fit(*args, **kwargs)
        self._untrained = frozenset()
        return history

    def predict(self, *args, **kwargs):
        self._warn_untrained("predict computes with")
        return super().predict(*args, **kwargs)

    def _warn_untrained(self, what: str) -> None:
        if self._untrained and not self._has_warned:
            self._has_warned = True
            names = ", ".join(self.untrained_weights)
            warnings.warn(
                f"the checkpoint did not hold {names}: {what} initial values",
                stacklevel=3,
            )

    def seed_of(self, part: int) -> int | None:
        """Returns a seed for a part of the model, far from the other parts' seeds."""
        return None if self.seed is None else self.seed + 100_000 * part

    def get_config(self):
        config = {
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "config": self.config.to_dict(),
            "seed": self.seed,
        }
        # Only what was set after construction, so that other configs stay as they are.
        layers = _layers_by_name(self).items()
        # Layers without weights have no lasting name.
        frozen = [name for name, x in layers if x.weights and not x.trainable]
        labels = list(self.labels) if self.labels else None
        state = {"frozen": frozen, "labels": labels, "problem_type": self.problem_type}
        return {**config, **{key: value for key, value in state.items() if value}}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        config["config"] = AlbertConfig.from_dict(config["config"])
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        frozen, labels = config.pop("frozen", ()), config.pop("labels", None)
        problem_type = config.pop("problem_type", None)
        model = cls(**config)
        model.labels = tuple(labels) if labels else None
        model.problem_type = problem_type
        layers = _layers_by_name(model)
        for name in frozen:
            layers[name].trainable = False
        return model


def _layers_by_name(model: keras.Model) -> dict[str, keras.layers.Layer]:
    """Returns the model under "" and its layers, those of its backbone included."""
    layers = {"": model, **{layer.name: layer for layer in model.layers}}
    backbone = getattr(model, "backbone", None)
    for layer in backbone.layers if backbone is not None else ():
        layers[f"backbone/{layer.name}"] = layer
    return layers


def as_inputs(inputs, *needed: str) -> dict:
    """Returns the dict of input tensors; a single tensor becomes `token_ids`.

    Args:
        inputs: dict or tensor. The model's inputs.
        *needed: str. Required keys besides `token_ids`.

    Raises:
        ValueError: If a key is missing, or is another package's name for an input,
            which would be ignored.
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
            raise ValueError(f"inputs must have {key!r}, received {sorted(inputs)}")
    return inputs


def weight_names(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the model's weights by canonical names, in the order of creation.

    A name is the variable's path without the model's own name, such as
    `backbone/encoder/attention_0/query/kernel`; it does not depend on how the user
    named the model. Seeds of random generators are not weights.
    """
    # Keras starts a path with the name of the model that built the variable: a
    # backbone's variables begin with "backbone", a head's with the model's name.
    backbone = getattr(model, "backbone", None)
    inner = weight_names(backbone) if backbone is not None else {}
    names = {f"backbone/{name}": variable for name, variable in inner.items()}
    inside = {id(variable) for variable in inner.values()}
    for variable in model.weights:
        if "seed_generator" not in variable.path and id(variable) not in inside:
            names[variable.path.partition("/")[2]] = variable
    return names
