"""Implements the original's LAMB and AdamW on any Keras backend.

Imports only keras, numpy and the standard library, and, where Keras runs on
TensorFlow, its kernel for Adam.
"""

from albert_tf.optimizers.adamw import AdamW
from albert_tf.optimizers.base import AdamStyleOptimizer
from albert_tf.optimizers.create import create_optimizer
from albert_tf.optimizers.decays import (
    WarmupCosineDecay,
    WarmupLinearDecay,
    WarmupTrapezoid,
)
from albert_tf.optimizers.lamb import Lamb
from albert_tf.optimizers.schedules import WarmupPolynomialDecay

__all__ = [
    "AdamStyleOptimizer",
    "AdamW",
    "Lamb",
    "WarmupCosineDecay",
    "WarmupLinearDecay",
    "WarmupPolynomialDecay",
    "WarmupTrapezoid",
    "create_optimizer",
]
