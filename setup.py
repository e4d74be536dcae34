"""Finds the packages; everything else is in pyproject.toml."""

from setuptools import find_namespace_packages, setup

setup(
    packages=[
        *find_namespace_packages(include=["albert_tf", "albert_tf.*"]),
        "albert_tf_tools",
    ],
    # The commands live in tools/; installed, they must not be called `tools`.
    package_dir={"albert_tf_tools": "tools"},
    # `build/` would collide with the file BUILD where case does not count.
    options={"build": {"build_base": ".build"}},
)
