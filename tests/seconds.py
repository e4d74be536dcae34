"""Prints the dearest files and tests of the last runs: `python -m tests.seconds`."""

import collections
import pathlib
from xml.etree import ElementTree

FOLDER = pathlib.Path(__file__).resolve().parents[1] / ".build" / "seconds"


def main() -> None:
    """Reads the files that the Makefile lets pytest write."""
    for path in sorted(FOLDER.glob("*.xml")):
        seconds = {"files": collections.Counter(), "tests": collections.Counter()}
        for case in ElementTree.parse(path).iter("testcase"):
            file, took = case.get("classname"), float(case.get("time"))
            seconds["files"][file] += took
            seconds["tests"][f"{file}::{case.get('name').split('[')[0]}"] += took
        total = sum(seconds["files"].values())
        print(f"{path.stem}: {total:.0f} s in all workers")
        for kind, most in (("files", 30), ("tests", 40)):
            for name, took in seconds[kind].most_common(most):
                print(f"  {took:6.1f} {name}")


if __name__ == "__main__":
    main()
