"""What an ALBERT (or BERT) encoder looks like: sizes, sharing, presets, counts.

Legend: `V` vocabulary, `E` embedding, `D` hidden, `F` feed-forward, `N` heads,
`L` layers, `G` groups of layers that share weights.
"""

import dataclasses
import json
import numbers
import os
from typing import Any, NamedTuple

from albert_tf import config_json
from albert_tf.errors import DataError
from albert_tf.heads import HEADS
from albert_tf.presets import PRESETS
from albert_tf.storage import files

SHARING_MODES = ("all", "attention", "ffn", "none")
# A config file that says more would only exhaust the memory.
MAX_BLOCKS = 4096
ACTIVATIONS = ("gelu_new", "gelu", "relu", "tanh", "silu", "linear")


class LayerWeights(NamedTuple):
    """Which weights one application of the transformer block reads."""

    attention: int
    attention_layer_norm: int
    ffn: int
    ffn_layer_norm: int


@dataclasses.dataclass(frozen=True)
class AlbertConfig:
    """Sizes of an encoder; the keys of the released `albert_config.json`, and some.

    Args:
        vocab_size: int. `V`.
        embedding_size: int. `E`. Equal to `hidden_size`, there is no projection.
        hidden_size: int. `D`.
        num_hidden_layers: int. `L`, how often a block is applied.
        num_hidden_groups: int. `G`; layer `i` belongs to group `i * G // L`.
        inner_group_num: int. Blocks applied one after the other in every layer.
        num_attention_heads: int. `N`, a divisor of `D`.
        intermediate_size: int. `F`.
        hidden_act: str. `"gelu_new"` is the tanh approximation (what the original
            computes for `"gelu"`), `"gelu"` the exact one.
        hidden_dropout_prob: float in `[0, 1)`.
        attention_probs_dropout_prob: float in `[0, 1)`.
        max_position_embeddings: int. Longest sequence.
        type_vocab_size: int. Number of segments.
        initializer_range: float. Standard deviation of the truncated normal.
        layer_norm_eps: float.
        classifier_dropout_prob: float. Dropout before a task's classifier.
        sharing: Which weights the layers of a group share (ALBERT, Table 4):
            `"all"`, `"attention"`, `"ffn"` or `"none"` (BERT).
        share_layer_norm: bool. False gives each layer its own layer norms, as
            some released TensorFlow 1 checkpoints have.
        embedding_projection: `"auto"`, which is none where `E` and `D` are equal, or
            `"always"`, as Hugging Face and KerasHub have it.
        mlm_layer_norm_eps: float or None. Of the masked LM head, where it is not
            `layer_norm_eps` (KerasHub's is 1e-5).
        group_rule: How a layer finds its group. `"integer"` is exact; the floating
            point of `"original"` and `"huggingface"` differs for sizes such as L = 18,
            G = 14, and is only for checkpoints that were trained so.

    Raises:
        ValueError: If a value is impossible; the message names it.
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

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _check_type(field, getattr(self, field.name))
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                "hidden_size must be a multiple of num_attention_heads, received "
                f"{self.hidden_size} and {self.num_attention_heads}"
            )
        if self.num_hidden_groups > self.num_hidden_layers:
            raise ValueError(
                "num_hidden_groups must be at most num_hidden_layers, received "
                f"{self.num_hidden_groups} and {self.num_hidden_layers}"
            )

        if self.num_hidden_layers * self.inner_group_num > MAX_BLOCKS:
            raise ValueError(
                f"num_hidden_layers times inner_group_num must be at most {MAX_BLOCKS}"
                f", received {self.num_hidden_layers} and {self.inner_group_num}"
            )

    @classmethod
    def from_preset(cls, name: str, **changes) -> "AlbertConfig":
        """A released model's sizes.

        Args:
            name: `albert_{base,large,xlarge,xxlarge}_v{1,2}`, `bert_base` or
                `bert_large` (uncased).
            **changes: Fields to set differently.
        """
        if name not in PRESETS:
            raise ValueError(f"no preset {name!r}; there are {', '.join(PRESETS)}")
        return cls(**{**PRESETS[name], **changes})

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AlbertConfig":
        """From the content of our, the original's or Hugging Face's JSON.

        The original calls the tanh approximation `"gelu"`, Hugging Face
        `"gelu_new"`; which of the two wrote `values` is told by their other keys
        (`config_json.dialect`).
        """
        return cls(**config_json.to_fields(values, dataclasses.fields(cls)))

    @classmethod
    def from_json(cls, path: str | os.PathLike) -> "AlbertConfig":
        """Reads a JSON file; see `from_dict`.

        Raises:
            DataError: If the file is missing, not JSON, or not a usable config.
        """
        text = files.read_text(path)
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise DataError(f"{path}: not JSON: {e}") from None
        try:
            return cls.from_dict(values)
        except ValueError as e:
            raise DataError(f"{path}: {e}") from None

    def to_dict(self) -> dict[str, Any]:
        """The fields, with a mark that tells the dialect."""
        return {"format": config_json.OURS, **dataclasses.asdict(self)}

    def to_json(self, path: str | os.PathLike) -> None:
        """Writes the fields as JSON."""
        files.write_text(path, json.dumps(self.to_dict(), indent=2) + "\n")

    def replace(self, **changes) -> "AlbertConfig":
        """A copy with some fields set differently."""
        return dataclasses.replace(self, **changes)

    @property
    def head_size(self) -> int:
        """`H = D / N`."""
        return self.hidden_size // self.num_attention_heads

    @property
    def has_embedding_projection(self) -> bool:
        """Whether the embeddings are projected from `E` to `D`."""
        always = self.embedding_projection == "always"
        return always or self.embedding_size != self.hidden_size

    def layer_table(self) -> tuple[LayerWeights, ...]:
        """Weights read by each application of the block, in order.

        One row per layer and inner block (`L * inner_group_num` rows). Shared parts
        are numbered by group, others by application.
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
                attention = shared if share_attention else own
                ffn = shared if share_ffn else own
                if self.share_layer_norm:
                    rows.append(LayerWeights(attention, attention, ffn, ffn))
                else:
                    rows.append(LayerWeights(attention, own, ffn, own))
        return tuple(rows)

    def group_numbers(self) -> tuple[int, ...]:
        """The groups that some layer uses, in order; all, by the integer rule."""
        return tuple(sorted({*map(self._group_of, range(self.num_hidden_layers))}))

    def _group_of(self, layer: int) -> int:
        L, G = self.num_hidden_layers, self.num_hidden_groups
        if self.group_rule == "original":
            return int(layer / L * G)
        if self.group_rule == "huggingface":
            return int(layer / (L / G))
        return layer * G // L  # uses every group, which the other two do not

    def parameter_counts(self) -> dict[str, int]:
        """Number of parameters of each part of the encoder, pooler included."""
        V, E, D, F = (
            self.vocab_size,
            self.embedding_size,
            self.hidden_size,
            self.intermediate_size,
        )
        # As many as are built: a group that the floating point of `group_rule` skips
        # has weights too.
        columns = zip(*self.layer_table(), strict=True)
        distinct = LayerWeights(*(max(column) + 1 for column in columns))
        positions = self.max_position_embeddings + self.type_vocab_size
        return {
            "embeddings": (V + positions) * E + 2 * E,
            "embedding_projection": (E + 1) * D if self.has_embedding_projection else 0,
            "attention": distinct.attention * 4 * (D + 1) * D,
            "ffn": distinct.ffn * ((D + 1) * F + (F + 1) * D),
            "layer_norms": 2
            * D
            * (distinct.attention_layer_norm + distinct.ffn_layer_norm),
            "pooler": (D + 1) * D,
        }

    def num_parameters(self, head: str | None = None, num_labels: int = 2) -> int:
        """Number of trainable parameters, without building anything.

        Args:
            head: None for the backbone with its pooler, or one of `HEADS`. Masked
                LM, token classification and question answering have no pooler. The
                token table, tied to the MLM output, counts once.
            num_labels: int. Of the two classifiers.
        """
        counts = self.parameter_counts()
        backbone = sum(counts.values())
        if head is None:
            return backbone
        E, D = self.embedding_size, self.hidden_size
        without_pooler = backbone - counts["pooler"]
        mlm = (D + 1) * E + 2 * E + self.vocab_size
        totals = {
            "pretraining": backbone + mlm + 2 * (D + 1),
            "masked_lm": without_pooler + mlm,
            "text_classifier": backbone + num_labels * (D + 1),
            "token_classifier": without_pooler + num_labels * (D + 1),
            "question_answering": without_pooler + 2 * (D + 1),
            "multiple_choice": backbone + D + 1,
        }
        if head not in totals:
            raise ValueError(f"no head {head!r}; there are {', '.join(HEADS)}")
        return totals[head]

    def flops_per_token(self, sequence_length: int | None = None) -> int:
        """Multiply-adds, counted as two, of the encoder's forward pass per token.

        Sharing weights does not change it. Matrix products only: projections,
        feed-forward and both attention products at `sequence_length` (default: the
        longest).
        """
        T = sequence_length or self.max_position_embeddings
        D, F = self.hidden_size, self.intermediate_size
        block = 2 * (4 * D * D + 2 * D * F) + 4 * T * D
        projection = 2 * self.embedding_size * D * self.has_embedding_projection
        return len(self.layer_table()) * block + projection


def _check_type(field: dataclasses.Field, value: Any) -> None:
    """Raises a ValueError that names the field, the constraint and the value."""
    name = field.name
    allowed = {
        "sharing": SHARING_MODES,
        "hidden_act": ACTIVATIONS,
        "embedding_projection": ("auto", "always"),
        "group_rule": ("integer", "original", "huggingface"),
    }
    if value is None and name == "mlm_layer_norm_eps":
        return
    if name in allowed:
        ok, rule = value in allowed[name], f"one of {', '.join(allowed[name])}"
    elif field.type is bool:
        ok, rule = isinstance(value, bool), "true or false"
    elif field.type is int:
        ok = isinstance(value, int) and not isinstance(value, bool)
        ok, rule = ok and 0 < value < 2**31, "a positive integer"
    else:
        ok = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if name.endswith("_prob"):
            ok, rule = ok and 0 <= value < 1, "a number in [0, 1)"
        else:
            ok, rule = ok and 0 < value < float("inf"), "a positive number"
    if not ok:
        raise ValueError(f"{name} must be {rule}, received {value!r}")
