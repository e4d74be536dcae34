"""Implements layer normalization with a gradient of few operations."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("albert_tf")
class LayerNorm(keras.layers.Layer):
    """Layer normalization over the last axis, computed in float32 or more.

    The values of `keras.layers.LayerNormalization`, whose gradient TensorFlow derives
    operation by operation: on a CPU this one takes about two thirds of the time.

    Args:
        epsilon: float. Added to the variance.

    Call arguments:
        inputs: `[..., D]`.

    Returns:
        `[..., D]` in the compute dtype.
    """

    def __init__(self, epsilon: float, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        # In full precision, as in Keras: bfloat16 has no number between 1 and 1.0078.
        self.gamma, self.beta = (
            self.add_weight(
                name=name,
                shape=(input_shape[-1],),
                initializer=initializer,
                autocast=False,
            )
            for name, initializer in (("gamma", "ones"), ("beta", "zeros"))
        )
        self.built = True

    def call(self, inputs):
        dtype = keras.backend.result_type(inputs.dtype, "float32")
        x, gamma, beta = (ops.cast(v, dtype) for v in (inputs, self.gamma, self.beta))
        return ops.cast(_normalize(x, gamma, beta, self.epsilon), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return input_shape


def _normalize(x, gamma, beta, epsilon):
    def normal_and_inverse(x):
        centered = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        inverse = ops.rsqrt(variance + epsilon)
        return centered * inverse, inverse

    @ops.custom_gradient
    def normalize(x, gamma, beta):
        def gradient(*arguments, upstream=None):
            # PyTorch passes the upstream gradient by name, other backends do not.
            if upstream is None:
                (upstream,) = arguments
            # Computed from x again, for second derivatives. A compiled graph merges
            # them with those of the forward pass.
            normal, inverse = normal_and_inverse(x)
            others = tuple(range(len(x.shape) - 1))
            scaled = upstream * gamma
            mean = ops.mean(scaled, axis=-1, keepdims=True)
            slope = ops.mean(scaled * normal, axis=-1, keepdims=True)
            return (
                (scaled - mean - normal * slope) * inverse,
                ops.sum(upstream * normal, axis=others),
                ops.sum(upstream, axis=others),
            )

        return normal_and_inverse(x)[0] * gamma + beta, gradient

    return normalize(x, gamma, beta)
