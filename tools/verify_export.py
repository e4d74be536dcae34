"""Checks an exported folder against its manifest, and lists its signatures.

Example: `albert-tf verify_export --model=served/1`

Nothing in the folder is run. The digest that is printed first identifies the export:
keep it elsewhere, and give it as `--sha256` where the folder arrives.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.run import run

_MODEL = flags.DEFINE_string(
    "model", None, "Folder that export wrote, such as served/1.", required=True
)
_SHA256 = flags.DEFINE_string(
    "sha256", "", "Expected digest of the manifest, from an earlier call."
)


def main() -> None:
    """Checks the folder and prints the manifest's digest and the signatures."""
    from albert_tf.export import manifest
    from albert_tf.storage import files

    content = manifest.verify(_MODEL.value, _SHA256.value or None)
    print("sha256", files.digest_of(files.join(_MODEL.value, manifest.FILE))["sha256"])
    print(f"{len(content['files'])} files, {len(content['operations'])} operations")
    for line in manifest.describe(_MODEL.value):
        print(line)


if __name__ == "__main__":
    run(main)
