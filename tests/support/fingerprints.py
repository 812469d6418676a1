"""The bytes of built splits as one hash.

`python tests/support/fingerprints.py` prints those of tasks that need no files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from levelfield import tasks
from levelfield.spec import SPLITS, Examples, SplitName, UserError


def fingerprint(splits: Mapping[SplitName, Examples]) -> str:
    """SHA-256 over every array of the three splits and its type."""
    sha = hashlib.sha256()
    for e in (splits[split] for split in SPLITS):
        for column in [e.x, e.offsets, e.y, *(e.slices[name] for name in sorted(e.slices))]:
            sha.update(f"{column.dtype}{column.shape}".encode())
            sha.update(np.ascontiguousarray(column).tobytes())
    return sha.hexdigest()


if __name__ == "__main__":
    for name, module in tasks.modules().items():
        for i, task in enumerate(module.EXAMPLES):
            try:
                print(f"{name}-{i}", fingerprint(task.build(None)))
            except UserError:
                continue
