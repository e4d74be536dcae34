"""Rules for when a classifier stops: `entropy:0.3`, `patience:3` or `layers:6`."""

import contextlib
import dataclasses
import math

from albert_tf.errors import UsageError, require

ENTROPY, PATIENCE, LAYERS = KINDS = ("entropy", "patience", "layers")
RULE_HELP = (
    "entropy:H (stop once the entropy of the probabilities, in nats, is below H), "
    "patience:K (once K layers in a row have agreed with the one before) or layers:N "
    "(after N layers)"
)


@dataclasses.dataclass(frozen=True)
class ExitRule:
    """A rule for the layer after which a row has its answer.

    Args:
        kind: str. `"entropy"`: after the first layer where the entropy of the
            probabilities, in nats and not normalized, is below `value` (DeeBERT).
            `"patience"`: once `value` consecutive layers have predicted the same as the
            layer before them (PABEE). `"layers"`: after `value` layers. Without an
            earlier exit, rows stop after the last layer.

    Raises:
        UsageError: If one of them is invalid.
    """

    kind: str
    value: float | int

    def __post_init__(self):
        require(self.kind in KINDS, f"exit: expected {RULE_HELP}", self.kind)
        fits = isinstance(self.value, int | float) and math.isfinite(self.value)
        if self.kind == ENTROPY:
            fits, rule = fits and self.value >= 0, "a number of at least 0"
        else:
            fits = fits and 1 <= self.value == int(self.value)
            rule = "a positive integer"
        require(fits, f"exit: {self.kind} must be {rule}", self.value)

    @classmethod
    def parse(cls, text: "str | ExitRule") -> "ExitRule":
        """Reads a rule such as `entropy:0.3`; a rule is returned unchanged.

        Raises `UsageError` if it is not a rule.
        """
        if isinstance(text, cls):
            return text
        kind, _, value = str(text).partition(":")
        number = None
        with contextlib.suppress(ValueError):
            number = float(value) if kind == ENTROPY else int(value)
        fits = kind in KINDS and number is not None
        require(fits, f"exit: expected {RULE_HELP}", text)
        return cls(kind, number)

    def __str__(self) -> str:
        return f"{self.kind}:{self.value}"

    def check(self, num_layers: int, problem_type: str) -> None:
        """Raises `UsageError` if a model with these layers and logits cannot use it."""
        if self.kind == ENTROPY and problem_type != "single_label_classification":
            raise UsageError(
                "exit: entropy needs probabilities that sum to 1, so a single label, "
                f"received a model for {problem_type}; layers:N is for all"
            )
        if self.kind == PATIENCE and problem_type == "regression":
            raise UsageError(
                "exit: patience compares labels, received a model for regression; "
                "layers:N is for all"
            )
        most = num_layers - (self.kind == PATIENCE)
        need = (
            f"exit: {self.kind} must be from 1 to {most} for a model of {num_layers} "
            "layers"
        )
        require(self.kind == ENTROPY or self.value <= most, need, self.value)


def check_exit(exit: str | None, curve: str) -> ExitRule | None:
    """Returns the rule of a command, or None; `curve`, if any, measures all rules.

    Raises `UsageError` if the rule is invalid, both are given, or the file is not JSON.
    """
    whole = "exit: exits_curve compares rules with the whole model"
    require(not curve or exit is None, whole, exit)
    fits = not curve or curve.endswith(".json")
    require(fits, "exits_curve: expected a name with .json", curve)
    return None if exit is None else ExitRule.parse(exit)
