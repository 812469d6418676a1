"""The files that a page has its reader write: blocks of Python that begin with a file's name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path


def written(page: str) -> Iterator[str]:
    """Writes a page's files into the current folder, and yields its other blocks of Python."""
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        if name := re.match(r"# (\w+\.py)\n", block):
            Path(name[1]).write_text(block)
        else:
            yield block
