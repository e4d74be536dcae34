"""What all models have in common: a config, eager building, serialization."""

import warnings
from collections.abc import Iterable

import keras

from albert_tf.config import AlbertConfig

# Input names of Hugging Face and of the original -> ours.
_OTHER_NAMES = {
    "input_ids": "token_ids",
    "token_type_ids": "segment_ids",
    "attention_mask": "padding_mask",
    "input_mask": "padding_mask",
}


class ConfiguredModel(keras.Model):
    """A Keras model made from an `AlbertConfig`, with its weights built at once.

    Args:
        config: `AlbertConfig`.
        seed: int or None. Of the initial values; None draws from
            `keras.utils.set_random_seed`'s generator.
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
        """Names of weights that a checkpoint did not hold and nobody trained yet."""
        return sorted(self._untrained)

    def mark_untrained(self, names: Iterable[str]) -> None:
        """Says which weights have initial values; `fit` and `predict` warn once."""
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
        """A seed for a part of the model, far from the other parts' seeds."""
        return None if self.seed is None else self.seed + 100_000 * part

    def get_config(self):
        return {
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "config": self.config.to_dict(),
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        config["config"] = AlbertConfig.from_dict(config["config"])
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        return cls(**config)


def as_inputs(inputs, *needed: str) -> dict:
    """The dict of input tensors; a lone tensor is `token_ids`.

    Args:
        inputs: dict or tensor.
        *needed: Keys that must be there, besides `token_ids`.

    Raises:
        ValueError: If a key is missing, or is one that other packages use: it
            would be ignored.
    """
    if not isinstance(inputs, dict):
        if isinstance(inputs, (list, tuple)):
            raise ValueError("inputs must be a dict or one tensor, received a list")
        inputs = {"token_ids": inputs}
    for key, ours in _OTHER_NAMES.items():
        if key in inputs:
            raise ValueError(f"inputs has the key {key!r}, which is {ours!r} here")
    for key in ("token_ids", *needed):
        if key not in inputs:
            raise ValueError(f"inputs must have {key!r}, received {sorted(inputs)}")
    return inputs


def weight_names(model: keras.Model) -> dict[str, keras.Variable]:
    """The model's weights by their canonical names, in the order they were made.

    A name is the variable's path without the model's own name, such as
    `backbone/encoder/attention_0/query/kernel`; it does not depend on how the user
    named the model. Seeds of random generators are not weights.
    """
    # Keras starts a path with the name of the model that was built as one whole, and
    # a backbone is: its variables begin with "backbone", a head's with the model's.
    backbone = getattr(model, "backbone", None)
    inner = weight_names(backbone) if backbone is not None else {}
    names = {f"backbone/{name}": variable for name, variable in inner.items()}
    inside = {id(variable) for variable in inner.values()}
    for variable in model.weights:
        if "seed_generator" not in variable.path and id(variable) not in inside:
            names[variable.path.partition("/")[2]] = variable
    return names
