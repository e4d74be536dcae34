"""How classifiers on every layer are trained, for commands that do not load Keras."""

NONE, JOINT, FROZEN = MODES = ("none", "joint", "frozen")
