"""Describes the encoder of ALBERT or a relative: sizes, sharing, counts.

Legend: `V` vocabulary, `E` embedding, `D` hidden, `F` feed-forward, `N` heads,
`L` layers, `G` groups of layers that share weights.
"""

import dataclasses
import numbers
import os
from typing import Any, NamedTuple

import albert_tf
from albert_tf import heads
from albert_tf.config_files import FAMILIES, OURS, PRESETS, to_fields
from albert_tf.errors import DataError, require
from albert_tf.storage import files

SHARING_MODES = ("all", "attention", "ffn", "none")
# A config file with more blocks than this would only exhaust memory.
MAX_BLOCKS = 4096
ACTIVATIONS = ("gelu_new", "gelu", "relu", "tanh", "silu", "linear")
# The kernels of a block that layers may change by a matrix of low rank.
_OF_ATTENTION = ("query", "key", "value", "attention_output")
DEPTH_MATRICES = (*_OF_ATTENTION, "ffn_intermediate", "ffn_output")
# The fields that give each layer weights of its own, in addition to those it shares.
DEPTH_FIELDS = ("depth_embedding", "depth_rank", "depth_matrices")
# Fields that config files and records leave out where they are off.
OMITTED = ("position_offset", *DEPTH_FIELDS)


class LayerWeights(NamedTuple):
    """Lists the weights that one application of the transformer block reads."""

    attention: int
    attention_layer_norm: int
    ffn: int
    ffn_layer_norm: int


@dataclasses.dataclass(frozen=True)
class AlbertConfig:
    """Describes an encoder with the keys of the released `albert_config.json` and more.

    Args:
        vocab_size: int. `V`.
        embedding_size: int. `E`. If equal to `hidden_size`, there is no projection.
        hidden_size: int. `D`.
        num_hidden_layers: int. `L`, the number of times a block is applied.
        num_hidden_groups: int. `G`; layer `i` belongs to group `i * G // L`.
        inner_group_num: int. Number of blocks in every layer, applied in turn.
        num_attention_heads: int. `N`, a divisor of `D`.
        intermediate_size: int. `F`.
        hidden_act: str. `"gelu_new"` is the tanh approximation (what the original
            computes for `"gelu"`), `"gelu"` the exact function.
        hidden_dropout_prob: float in `[0, 1)`.
        attention_probs_dropout_prob: float in `[0, 1)`.
        max_position_embeddings: int. Length of the longest sequence.
        type_vocab_size: int. Number of segments. With 1 there are none: the texts of
            a pair are divided by two separators, as in RoBERTa (with any number).
        initializer_range: float. Standard deviation of the truncated normal.
        layer_norm_eps: float. Epsilon of the layer norms.
        classifier_dropout_prob: float. Dropout before a task's classifier.
        sharing: str. Weights that the layers of a group share (ALBERT, Table 4):
            `"all"`, `"attention"`, `"ffn"` or `"none"` (BERT).
        share_layer_norm: bool. False gives each layer its own layer norms, as in
            some released TensorFlow 1 checkpoints.
        embedding_projection: str. `"auto"` projects only if `E` and `D` differ,
            `"always"` in any case, as Hugging Face and KerasHub do.
        mlm_layer_norm_eps: float or None. Epsilon of the masked LM head's layer norm
            if it is not `layer_norm_eps` (KerasHub uses 1e-5).
        group_rule: str. Computes the group of a layer. `"integer"` is exact; the
            floating-point rules `"original"` and `"huggingface"` differ from it for
            sizes such as L = 18, G = 14, and are only for checkpoints trained that way.
        family: str or None. The model this encoder belongs to, which determines its
            names in other formats and the activations of its heads: `"albert"`,
            `"bert"`, `"roberta"` or `"electra"`. None derives it: an encoder
            of BERT's architecture (nothing shared, no projection, one block per layer)
            is `"bert"`, any other is `"albert"`. Only this architecture can be set to
            `"bert"`; any can be set to the others.
        position_offset: int. Row of the position table for the first token of a text.
            RoBERTa's is the padding id + 1: positions follow from the token ids, and
            padding has the preceding row. All other families have 0. The table has
            `max_position_embeddings + position_offset` rows.
        depth_embedding: bool. Whether each layer adds a vector of its own to its input
            (each block of the layer, if it has several). It starts as 0.
        depth_rank: int. `r`, the rank of `A B` in what each layer adds to the products
            with its kernels: `x W + b` becomes `x W + b + x A B + c`, with a layer's
            own `A`, `B` and `c`, whatever `sharing` says. `B` and `c` start as 0
            (LoRA, arXiv:2106.09685; for shared layers, arXiv:2410.20672), so that a
            model begins as it is without them. With rank `D` and
            `share_layer_norm=False`, layers that share all else can compute whatever
            layers with `sharing="none"` can. 0 for none.
        depth_matrices: sequence of str or None. The kernels to which the rank applies,
            of `"query"`, `"key"`, `"value"`, `"attention_output"`,
            `"ffn_intermediate"` and `"ffn_output"`; None for all of them.

    Raises:
        ValueError: If a value is invalid; the message names it.

    Example:
        >>> import albert_tf
        >>> config = albert_tf.AlbertConfig.from_preset("albert_base_v2")
        >>> config.num_parameters()
        11683584
        >>> config.replace(sharing="attention").num_parameters()
        63647232
        >>> albert_tf.AlbertConfig.from_preset("bert_base").num_parameters()
        109482240
    """

    vocab_size: int = 30000
    embedding_size: int = 128
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_hidden_groups: int = 1
    inner_group_num: int = 1
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu_new"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    classifier_dropout_prob: float = 0.1
    sharing: str = "all"
    share_layer_norm: bool = True
    embedding_projection: str = "auto"
    mlm_layer_norm_eps: float | None = None
    group_rule: str = "integer"
    family: str | None = None
    position_offset: int = 0
    depth_embedding: bool = False
    depth_rank: int = 0
    depth_matrices: tuple[str, ...] | None = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _check_type(field, getattr(self, field.name))
        D, N, L = self.hidden_size, self.num_attention_heads, self.num_hidden_layers
        groups, inner = self.num_hidden_groups, self.inner_group_num
        multiple = "hidden_size must be a multiple of num_attention_heads"
        most = f"num_hidden_layers times inner_group_num must be at most {MAX_BLOCKS}"
        fewer = "num_hidden_groups must be at most num_hidden_layers"
        require(D % N == 0, multiple, D, N, error=ValueError)
        require(groups <= L, fewer, groups, L, error=ValueError)
        require(L * inner <= MAX_BLOCKS, most, L, inner, error=ValueError)
        expected = "position_offset must be the tokenizer's pad_id + 1 for the family "
        expected += "'roberta', else 0"
        fits = (self.position_offset > 0) == (self.family == "roberta")
        require(fits, expected, self.position_offset, error=ValueError)
        self._check_depth()
        if self.family is None:
            object.__setattr__(self, "family", self._derived_family())
        elif self.family == "bert" and self._derived_family() != "bert":
            raise ValueError(
                "family 'bert' needs sharing='none', embedding_size equal to "
                "hidden_size, embedding_projection='auto' and inner_group_num=1, "
                f"received sharing={self.sharing!r}, sizes {self.embedding_size} and "
                f"{self.hidden_size}, {self.embedding_projection!r} and "
                f"{self.inner_group_num}"
            )

    def _check_depth(self) -> None:
        """Checks the weights of single layers, and puts their names in order."""
        if (names := self.depth_matrices) is not None:
            need = "depth_matrices needs a depth_rank above 0; leave it out"
            require(self.depth_rank, need, names, error=ValueError)
            ordered = tuple(name for name in DEPTH_MATRICES if name in names)
            ordered = None if ordered == DEPTH_MATRICES else ordered
            object.__setattr__(self, "depth_matrices", ordered)
        for name, shape in self.depth_shapes().items():
            rank, most = self.depth_rank, min(shape)
            need = f"depth_rank must be at most {most}, the width of {name}"
            require(rank <= most, need, rank, error=ValueError)

    @classmethod
    def from_preset(cls, name: str, **changes) -> "AlbertConfig":
        """Returns the config of a released model.

        Args:
            name: str. `albert_{base,large,xlarge,xxlarge}_v{1,2}`, `bert_{base,large}`
                (uncased), `roberta_{base,large}`, `electra_{small,base,large}` or
                `electra_albert_base`; ELECTRA's presets are the discriminators.
            **changes: Fields to set differently, as in `replace`.
        """
        expected = f"preset must be one of {', '.join(PRESETS)}"
        require(name in PRESETS, expected, name, error=ValueError)
        return cls(**PRESETS[name]).replace(**changes)

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike) -> "AlbertConfig":
        """Reads the config of a checkpoint in any format `from_pretrained` reads."""
        return albert_tf._loader().load_config(path)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AlbertConfig":
        """Reads the content of our, the original's or Hugging Face's JSON.

        The original calls the tanh approximation `"gelu"`, Hugging Face
        `"gelu_new"`; the other keys show which of the two wrote `values`. With the
        family RoBERTa or ELECTRA, `"gelu"` is the exact function in any file.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**to_fields(values, names))

    @classmethod
    def from_json(cls, path: str | os.PathLike) -> "AlbertConfig":
        """Reads a JSON file; see `from_dict`.

        Raises:
            DataError: If the file is missing, not JSON, or not a usable config.
        """
        values = files.read_json(path)
        try:
            return cls.from_dict(values)
        except ValueError as e:
            raise DataError(f"{path}: {e}") from None

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields and a key that marks the dialect."""
        fields = dataclasses.asdict(self)
        if self.depth_matrices:
            fields["depth_matrices"] = list(self.depth_matrices)  # as in JSON
        fields = {k: v for k, v in fields.items() if v or k not in OMITTED}
        return {"format": OURS, **fields}

    def to_json(self, path: str | os.PathLike) -> None:
        """Writes the fields as JSON."""
        files.write_text(path, files.to_json(self.to_dict(), indent=2) + "\n")

    def replace(self, **changes) -> "AlbertConfig":
        """Returns a copy with some fields set differently.

        A family that follows from the architecture is derived again: with another
        `sharing`, `bert_base` becomes an ALBERT. A family that differs from the derived
        one is preserved.
        """
        if self.family == self._derived_family():
            changes = {"family": None, **changes}
        return dataclasses.replace(self, **changes)

    def _derived_family(self) -> str:
        is_plain = self.sharing == "none" and self.inner_group_num == 1
        return "bert" if is_plain and not self.has_embedding_projection else "albert"

    @property
    def head_act(self) -> str:
        """The activation of the masked LM head, by the names of `hidden_act`.

        In RoBERTa and ELECTRA, it is the exact gelu whatever the encoder uses.
        """
        return "gelu" if self.family in ("roberta", "electra") else self.hidden_act

    @property
    def pooler_act(self) -> str:
        """The activation of the pooler, by Keras's names; its gelu is exact."""
        return "gelu" if self.family == "electra" else "tanh"

    @property
    def pooler_dropout_prob(self) -> float:
        """Dropout before a text classifier's pooler, as in Hugging Face's models."""
        two = self.family in ("roberta", "electra")
        return self.classifier_dropout_prob if two else 0.0

    @property
    def has_pooler(self) -> bool:
        """Whether the encoder alone has a pooler; ELECTRA's does not."""
        return self.family != "electra"

    @property
    def num_segments(self) -> int:
        """Number of segments of a pair; 1 in RoBERTa, whatever its table contains."""
        return 1 if self.family == "roberta" else self.type_vocab_size

    @property
    def num_positions(self) -> int:
        """Rows of the position table."""
        return self.max_position_embeddings + self.position_offset

    def check_pad_id(self, pad_id: int, where: str, error: type = DataError) -> None:
        """Raises an error if a tokenizer's padding id contradicts `position_offset`."""
        offset = self.position_offset
        need = f"{where}: the tokenizer's pad_id must be {offset - 1}, as the config's "
        need += f"position_offset={offset} counts positions from the next id; a new "
        need += f"model for this tokenizer needs position_offset={pad_id + 1}"
        require(offset in (0, pad_id + 1), need, pad_id, error=error)

    @property
    def head_size(self) -> int:
        """`H = D / N`."""
        return self.hidden_size // self.num_attention_heads

    @property
    def has_embedding_projection(self) -> bool:
        """Whether the embeddings are projected from `E` to `D`."""
        always = self.embedding_projection == "always"
        return always or self.embedding_size != self.hidden_size

    @property
    def has_depth_weights(self) -> bool:
        """Whether layers have weights of their own, in addition to those they share."""
        return self.depth_embedding or self.depth_rank > 0

    def depth_shapes(self) -> dict[str, tuple[int, int]]:
        """Returns the shapes of the kernels to which `depth_rank` applies, by name."""
        D, F = self.hidden_size, self.intermediate_size
        others = {"ffn_intermediate": (D, F), "ffn_output": (F, D)}
        names = (self.depth_matrices or DEPTH_MATRICES) if self.depth_rank else ()
        return {name: others.get(name, (D, D)) for name in names}

    def layer_table(self) -> tuple[LayerWeights, ...]:
        """Returns the weights that each application of the block reads, in order.

        There is one row per layer and inner block (`L * inner_group_num` rows). Shared
        parts are numbered by group, others by application.
        """
        share_attention = self.sharing in ("all", "attention")
        share_ffn = self.sharing in ("all", "ffn")
        groups = self.group_numbers()
        rows = []
        for layer in range(self.num_hidden_layers):
            group = groups.index(self._group_of(layer))
            for inner in range(self.inner_group_num):
                shared = group * self.inner_group_num + inner
                own = layer * self.inner_group_num + inner
                parts = shared if share_attention else own, shared if share_ffn else own
                norms = parts if self.share_layer_norm else (own, own)
                rows.append(LayerWeights(parts[0], norms[0], parts[1], norms[1]))
        return tuple(rows)

    def group_numbers(self) -> tuple[int, ...]:
        """Returns the groups used by a layer, in order; the integer rule uses all."""
        return tuple(sorted({*map(self._group_of, range(self.num_hidden_layers))}))

    def _group_of(self, layer: int) -> int:
        L, G = self.num_hidden_layers, self.num_hidden_groups
        if self.group_rule == "original":
            return int(layer / L * G)
        if self.group_rule == "huggingface":
            return int(layer / (L / G))
        return layer * G // L  # uses every group, unlike the other two rules

    def parameter_counts(self) -> dict[str, int]:
        """Returns the number of parameters of each part of the encoder and pooler.

        The layer norm of the embeddings is counted with the layer norms. `depth`, the
        weights of single layers, is only there if the model has some.
        """
        V, E = self.vocab_size, self.embedding_size
        D, F = self.hidden_size, self.intermediate_size
        # A group skipped by a floating-point `group_rule` is also built and counted.
        columns = zip(*self.layer_table(), strict=True)
        distinct = LayerWeights(*(max(column) + 1 for column in columns))
        r, shapes = self.depth_rank, self.depth_shapes().values()
        own = D * self.depth_embedding + sum(r * (a + b) + b for a, b in shapes)
        depth = {"depth": len(self.layer_table()) * own} if own else {}
        return {
            "token_embeddings": V * E,
            "position_embeddings": self.num_positions * E,
            "segment_embeddings": self.type_vocab_size * E,
            "embedding_projection": (E + 1) * D if self.has_embedding_projection else 0,
            "attention": distinct.attention * 4 * (D + 1) * D,
            "ffn": distinct.ffn * ((D + 1) * F + (F + 1) * D),
            "layer_norms": 2 * E
            + 2 * D * (distinct.attention_layer_norm + distinct.ffn_layer_norm),
            "pooler": (D + 1) * D,
            **depth,
        }

    def num_parameters(self, head: str | None = None, num_labels: int = 2) -> int:
        """Returns the number of trainable parameters without building anything.

        The token table, tied to the MLM output, counts once.

        Args:
            head: str or None. One of `heads.HEADS`, counted without a pooler if it
                does not use one, or None for the backbone with its pooler. An embedder
                is counted as it is without options.
            num_labels: int. Number of labels of a classifier that leaves it open.
        """
        expected = f"head must be one of {', '.join(heads.HEADS)}"
        require(head in (None, *heads.HEADS), expected, head, error=ValueError)
        row = heads.find(head)
        counts = self.parameter_counts()
        if not (row.uses_pooler and (head or self.has_pooler)):
            del counts["pooler"]
        E, D = self.embedding_size, self.hidden_size
        mlm_head = (D + 1) * E + 2 * E + self.vocab_size
        sizes = {
            "mlm_head": mlm_head,
            # With embeddings of size 200 for 15 places in a span, the model's defaults.
            "sbo_head": mlm_head + (2 * D + 200 + 1) * D + 2 * D + 15 * 200,
            "sop_head": 2 * (D + 1),
            "classifier": (row.fixed_labels or num_labels) * (D + 1),
            "start_head": D + 1,
            "end_head": (2 * D + 1) * D + 2 * D + D + 1,
            "answer_head": (2 * D + 1) * D + D,
            "discriminator": (D + 1) * D + D + 1,
        }
        return sum(counts.values()) + sum(sizes[part] for part in row.parts)

    def flops_per_token(self, sequence_length: int | None = None) -> int:
        """Returns the FLOPs per token of the encoder's forward pass.

        A multiply-add counts as two. Sharing weights does not change the number. Only
        matrix products count: projections, feed-forward and both attention products
        at `sequence_length` (default: the longest).
        """
        T = sequence_length or self.max_position_embeddings
        D, F = self.hidden_size, self.intermediate_size
        block = 2 * (4 * D * D + 2 * D * F) + 4 * T * D
        block += 2 * self.depth_rank * sum(map(sum, self.depth_shapes().values()))
        projection = 2 * self.embedding_size * D * self.has_embedding_projection
        return len(self.layer_table()) * block + projection


def activations(
    config: AlbertConfig, batch_size: int, sequence_length: int, recompute: bool = False
) -> int:
    """Estimates the number of values that training stores for the backward pass.

    A block stores its input, query, key, value, context, both residual sums and both
    normalized sums, the attention scores and probabilities, the feed-forward's two
    inner values (`9 D + 2 F + 2 N T` per token), and `depth_rank` values per matrix.
    Heads, dropout masks and fused kernels are not counted. With `recompute`, only the
    input of every block is stored, and one block at a time is recomputed.
    """
    D, F, T = config.hidden_size, config.intermediate_size, sequence_length
    block = 9 * D + 2 * F + 2 * config.num_attention_heads * T
    block += config.depth_rank * len(config.depth_shapes())
    blocks = len(config.layer_table())
    stored = blocks * D + block if recompute else blocks * block
    return batch_size * T * (2 * config.embedding_size + stored)


# Generators are smaller than discriminators; a mistake must not exhaust memory.
_MAX_SHARE = 16


def generator_config(config: AlbertConfig, size: float, layers: float) -> AlbertConfig:
    """Returns the config of a generator, by shares of a discriminator's sizes.

    As in the original's `get_generator_config`, heads keep their size, with at least
    one head. Raises `UsageError` if a share is not in (0, 16], or the heads do not
    divide the size.
    """
    for name, share in (("generator_size", size), ("generator_layers", layers)):
        require(share > 0, f"{name} must be positive", share)
        require(share <= _MAX_SHARE, f"{name} must be at most {_MAX_SHARE}", share)
    D = max(1, round(config.hidden_size * size))
    L = max(1, round(config.num_hidden_layers * layers))
    count = max(1, D // config.head_size)
    need = f"generator_size={size}: hidden_size of the generator must be a multiple of "
    need += f"its number of heads, {count} (of about {config.head_size} as in the "
    require(D % count == 0, f"{need}discriminator)", D)
    F = max(1, round(config.intermediate_size * size))
    return config.replace(
        hidden_size=D,
        intermediate_size=F,
        num_attention_heads=count,
        num_hidden_layers=L,
        num_hidden_groups=min(config.num_hidden_groups, L),
        depth_rank=min(config.depth_rank, D, F),
    )


def _check_type(field: dataclasses.Field, value: Any) -> None:
    """Raises `ValueError` that names the field, the constraint and the value."""
    name = field.name
    allowed = {
        "sharing": SHARING_MODES,
        "hidden_act": ACTIVATIONS,
        "embedding_projection": ("auto", "always"),
        "group_rule": ("integer", "original", "huggingface"),
        "family": FAMILIES,
    }
    if value is None and name in ("mlm_layer_norm_eps", "family", "depth_matrices"):
        return
    if name in allowed:
        ok, kind = value in allowed[name], f"one of {', '.join(allowed[name])}"
    elif name == "depth_matrices":
        ok = isinstance(value, list | tuple) and len(value) > 0
        ok = ok and all(value.count(one) == (one in DEPTH_MATRICES) for one in value)
        kind = f"a list of different names of {', '.join(DEPTH_MATRICES)}"
    elif field.type is bool:
        ok, kind = isinstance(value, bool), "true or false"
    elif field.type is int:
        ok = isinstance(value, int) and not isinstance(value, bool)
        least = 0 if name in ("position_offset", "depth_rank") else 1
        ok = ok and least <= value < 2**31
        kind = "a positive integer" if least else "an integer of at least 0"
    else:
        ok = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if name.endswith("_prob"):
            ok, kind = ok and 0 <= value < 1, "a number in [0, 1)"
        else:
            ok, kind = ok and 0 < value < float("inf"), "a positive number"
    require(ok, f"{name} must be {kind}", value, error=ValueError)
