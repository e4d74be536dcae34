"""Pretrains a discriminator with the replacements that a small generator draws.

ELECTRA, arXiv:2003.10555, section 2: a masked LM, the generator, fills the masked
positions with tokens drawn from its distribution, and the discriminator predicts for
every token whether it was replaced.

Legend: `B` batch, `T` sequence, `P` predictions, `V` vocabulary.
"""

import numbers

import keras
from keras import ops

from albert_tf import features
from albert_tf.config import AlbertConfig, generator_config
from albert_tf.errors import require
from albert_tf.heads import PAIRS
from albert_tf.layers.gathering import gather_positions
from albert_tf.models.base import as_inputs
from albert_tf.models.discriminator import WithDiscriminator
from albert_tf.models.masked_lm import AlbertMaskedLM

TIED, DISENTANGLED, UNTIED = EMBEDDING_SHARING = ("tied", "disentangled", "none")
_NEVER = -1e4  # added to a logit: its probability becomes 0


@keras.saving.register_keras_serializable("albert_tf")
class ElectraPretrainer(WithDiscriminator):
    """A generator and a discriminator that are trained together.

    The backbone is the discriminator's. `generator` is an `AlbertMaskedLM`. No gradient
    passes through the drawn tokens, so the discriminator's loss reaches the generator
    only through weights that both read.

    Args:
        config: `AlbertConfig`. For the discriminator, and by `generator_config` for the
            generator. With `sharing="all"`, each has one block.
        generator_size: float. Width of the generator as a share of the discriminator's.
        generator_layers: float. The same for its number of layers.
        embedding_sharing: str. `"tied"`: both read the same tables and layer norm, as
            in the original. `"disentangled"`: the discriminator's tables are
            `stop_gradient(E_G) + delta` with `delta` 0 at first (DeBERTaV3,
            arXiv:2111.09543, section 3.2), and it has its own layer norm; its weights
            `embeddings/*_embeddings` are `delta`. `"none"`: both have their own.
        share_encoder: bool. Whether the generator applies the discriminator's block,
            `generator_layers` times as often. Needs a single block and
            `generator_size=1`. Both losses then train the block.
        temperature: float. The logits are divided by it before tokens are drawn.
        disallow_correct: bool. Whether the original token is never drawn.
        seed: int or None. Seed of the initial values.

    Call arguments:
        inputs: dict as for `AlbertBackbone`, with masked `token_ids`; besides
            `mask_positions` and `mask_ids` int32, `mask_weights` and `sample_draws`
            (in [0, 1)) float32, all `[B, P]`. The drawn tokens are a function of
            `sample_draws` and the logits. Other keys are ignored.
        training, seeds: As for `AlbertBackbone`.

    Returns:
        dict with `generator_logits` float32 `[B, P, V]`; `corrupted_ids` int32
        `[B, T]`, what the discriminator reads; `replaced` int32 `[B, T]`, 1 where that
        is not the original token, so 0 where the original was drawn; and
        `discriminator_logits` float32 `[B, T]`, above 0 where a token was probably
        replaced.

    Raises:
        UsageError: If an argument is invalid.
        ValueError: If an input is missing.

    Example:
        >>> import albert_tf, numpy as np
        >>> model = albert_tf.ElectraPretrainer(albert_tf.AlbertConfig(vocab_size=100))
        >>> inputs = {"token_ids": [[2, 13, 4, 8, 3]], "mask_positions": [[2]]}
        >>> inputs |= {"mask_ids": [[9]], "mask_weights": [[1.0]]}
        >>> inputs |= {"sample_draws": [[0.5]]}
        >>> outputs = model({name: np.array(value) for name, value in inputs.items()})
        >>> outputs["generator_logits"].shape, outputs["discriminator_logits"].shape
        (TensorShape([1, 1, 100]), TensorShape([1, 5]))
    """

    arguments = PAIRS["electra"].options
    needed_inputs = (
        features.MASK_POSITIONS,
        features.MASK_IDS,
        features.MASK_WEIGHTS,
        features.SAMPLE_DRAWS,
    )

    def __init__(
        self,
        config: AlbertConfig,
        *,
        generator_size: float = 0.25,
        generator_layers: float = 1.0,
        embedding_sharing: str = TIED,
        share_encoder: bool = False,
        temperature: float = 1.0,
        disallow_correct: bool = False,
        **kwargs,
    ):
        choices = f"embedding_sharing must be one of {', '.join(EMBEDDING_SHARING)}"
        fits = embedding_sharing in EMBEDDING_SHARING
        require(fits, choices, embedding_sharing)
        sizes = {"generator_size": generator_size, "generator_layers": generator_layers}
        for name, value in {**sizes, "temperature": temperature}.items():
            fits = isinstance(value, numbers.Real) and value > 0
            require(fits, f"{name} must be a positive number", value)
        if share_encoder:
            need = "share_encoder: generator_size must be 1, as both are of one width"
            require(generator_size == 1, need, generator_size)
            need = "share_encoder: generator_layers must be at most 1"
            require(generator_layers <= 1, need, generator_layers)
            one_block = config.sharing == "all" and config.num_hidden_groups == 1
            need = "share_encoder needs sharing='all' and one group"
            received = f"{config.sharing}, {config.num_hidden_groups}"
            require(one_block, need, received)
        self.generator_size = generator_size
        self.generator_layers = generator_layers
        self.embedding_sharing = embedding_sharing
        self.share_encoder = share_encoder
        self.temperature = temperature
        self.disallow_correct = disallow_correct
        super().__init__(config, **kwargs)

    def add_layers(self):
        backbone, sharing = self.backbone, self.embedding_sharing
        config = generator_config(
            self.config, self.generator_size, self.generator_layers
        )
        shared = {}
        if sharing == TIED:
            shared["embeddings"] = backbone.embeddings
        if self.share_encoder:
            shared["encoder"] = backbone.encoder
        self.generator = AlbertMaskedLM(
            config,
            seed=self.seed_of(40),
            shared=shared,
            dtype=self.dtype_policy,
            name="generator",
        )
        if sharing == DISENTANGLED:
            base = self.generator.backbone.embeddings
            backbone.embeddings.base = lambda *ids: ops.stop_gradient(
                base.look_up(*ids)
            )
            for table in backbone.embeddings.tables:
                table.assign(ops.zeros(table.shape, table.dtype))
        super().add_layers()

    def call(self, inputs, training=False, seeds=None):
        draws = inputs.get(features.SAMPLE_DRAWS) if isinstance(inputs, dict) else None
        inputs = as_inputs(inputs, *self.needed_inputs)
        # Computed once from the inputs, because the two nets read different ids.
        mask = self.backbone.mask_of(inputs)
        if mask is not None:
            inputs = {**inputs, features.PADDING_MASK: mask}
        logits = self.generator(inputs, training=training, seeds=seeds)
        drawable, offset = logits, self.config.position_offset
        if offset:  # a drawn <pad> would shift later positions
            drawable = logits + _NEVER * ops.one_hot(
                offset - 1, logits.shape[-1], dtype=logits.dtype
            )
        drawn = sample(
            drawable,
            draws,
            self.temperature,
            inputs[features.MASK_IDS] if self.disallow_correct else None,
        )
        corrupted, replaced = put_in(inputs, drawn)
        outputs = self.backbone(
            {**inputs, features.TOKEN_IDS: corrupted}, training=training, seeds=seeds
        )
        return {
            "generator_logits": logits,
            "discriminator_logits": self.discriminator(outputs["sequence_output"]),
            "corrupted_ids": corrupted,
            "replaced": replaced,
        }


def sample(logits, draws, temperature: float = 1.0, never=None):
    """Draws int32 `[B, P]` from `softmax(logits / temperature)`, without a gradient.

    A uniform number picks the token whose interval of the cumulative softmax contains
    it: the distribution of the original's Gumbel noise, with one number in [0, 1) for
    each prediction instead of `V`. Tokens in `never` `[B, P]` are not drawn.
    """
    logits = ops.cast(ops.stop_gradient(logits), "float32") / temperature
    if never is not None:
        logits += _NEVER * ops.one_hot(never, logits.shape[-1], dtype="float32")
    cumulative = ops.cumsum(ops.softmax(logits), axis=-1)
    total = cumulative[..., -1:]  # almost 1
    place = ops.expand_dims(ops.cast(draws, "float32"), -1) * total
    passed = ops.sum(ops.cast(cumulative <= place, "int32"), axis=-1)
    # If rounding makes the place equal to the total, take the last possible token.
    last = ops.sum(ops.cast(cumulative < total, "int32"), axis=-1)
    return ops.minimum(passed, last)


def put_in(inputs, drawn):
    """Puts drawn tokens int32 `[B, P]` at the masked positions, which are distinct.

    Drawn tokens of weight 0 are ignored. Returns the ids, int32 `[B, T]`, and 1 where
    they differ from the original ones, likewise.
    """
    ids, positions = inputs[features.TOKEN_IDS], inputs[features.MASK_POSITIONS]
    B, T = ops.shape(ids)
    used = ops.cast(inputs[features.MASK_WEIGHTS], "float32") > 0
    now = ops.squeeze(gather_positions(ops.expand_dims(ids, -1), positions), -1)
    differs = ops.not_equal(drawn, inputs[features.MASK_IDS])
    first = ops.expand_dims(ops.arange(B, dtype="int32") * T, 1)
    rows = ops.reshape(ops.cast(positions, "int32") + first, (-1,))

    def at_positions(values):
        values = ops.reshape(ops.where(used, ops.cast(values, "int32"), 0), (-1,))
        return ops.reshape(ops.segment_sum(values, rows, B * T), (B, T))

    # Use sums, so that unused predictions, zeros at position 0, have no effect.
    ids = ops.cast(ids, "int32")
    return ids + at_positions(drawn - ops.cast(now, "int32")), at_positions(differs)
