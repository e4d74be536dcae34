"""Base classes of layers and models: a config, a seed, and initial values."""

import contextlib
import contextvars

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers.context import within
from albert_tf.layers.dropout import Dropout
from albert_tf.layers.gradients import LayerNorm, linear

_SKIP = contextvars.ContextVar("albert_tf_skip_initial_values", default=False)


def without_initial_values() -> contextlib.AbstractContextManager[None]:
    """Sets kernels and tables to zero instead of random values before loading them.

    Drawing 223 million numbers takes longer and needs more memory than reading them.
    """
    return within(_SKIP, True)


@keras.saving.register_keras_serializable("albert_tf")
class TruncatedNormal(keras.initializers.TruncatedNormal):
    """The original's initial values, or zeros inside `without_initial_values`."""

    def __call__(self, shape, dtype=None):
        if _SKIP.get():
            return ops.zeros(shape, dtype=dtype)
        return super().__call__(shape, dtype=dtype)


class Dense(keras.layers.Dense):
    """A dense layer that sums the gradient of its bias in float32.

    On a CPU, Keras's sums it over the tokens in bfloat16: 38,400 ones give 256.
    """

    def call(self, inputs, training=None):
        is_half = self.compute_dtype in ("bfloat16", "float16")
        if not (is_half and self.use_bias and len(inputs.shape) == 3):
            return super().call(inputs, training=training)
        weights = (ops.cast(w, self.compute_dtype) for w in (self.kernel, self.bias))
        return self.activation(linear(inputs, *weights))


class Configured:
    """Common parts of layers and models: a config, and a seed for each part.

    Attributes:
        seed: int or None. Seed of the initial values and of dropout.
    """

    seed_step = 1  # from the seed of one part to the next
    # More arguments of the constructor, which are attributes of the same names.
    arguments: tuple[str, ...] = ()

    def seed_of(self, part: int) -> int | None:
        """Returns the seed of a part, or None without a seed."""
        return None if self.seed is None else self.seed + self.seed_step * part

    def initial_values(self, part: int) -> TruncatedNormal:
        """Returns the original's initializer, with the seed of a part."""
        stddev = self.config.initializer_range
        return TruncatedNormal(stddev=stddev, seed=self.seed_of(part))

    def add_dense(self, units: int, name: str, part: int = 0, **kwargs):
        """Returns a dense layer of the same dtype, unless `kwargs` sets another one."""
        values = {"dtype": self.dtype_policy}
        values["kernel_initializer"] = self.initial_values(part)
        return Dense(units, name=name, **{**values, **kwargs})

    def add_layer_norm(self, name: str, **kwargs) -> LayerNorm:
        """Returns a layer norm of the same dtype, unless `kwargs` sets another one."""
        kwargs = {"epsilon": self.config.layer_norm_eps, **kwargs}
        return LayerNorm(name=name, **{"dtype": self.dtype_policy, **kwargs})

    def add_dropout(self, rate: float, part: int = 0, **kwargs) -> Dropout:
        """Returns a dropout of the same dtype, unless `kwargs` sets another one."""
        return Dropout(
            rate, self.seed_of(part), **{"dtype": self.dtype_policy, **kwargs}
        )

    def compute_output_spec(self, *args, **kwargs):
        # Traces `call`. Keras would use compute_output_shape, which exists for
        # `summary()` and knows neither dtypes nor further outputs.
        return super(keras.layers.Layer, self).compute_output_spec(*args, **kwargs)


class ConfiguredLayer(Configured, keras.layers.Layer):
    """A layer built from an `AlbertConfig` and a seed."""

    def __init__(self, config: AlbertConfig, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.seed = seed

    def get_config(self):
        own = {name: getattr(self, name) for name in ("seed", *self.arguments)}
        return {**super().get_config(), "config": self.config.to_dict(), **own}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "config": AlbertConfig.from_dict(config["config"])})
