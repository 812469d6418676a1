"""Gives the package its long description: the README, with links that lead somewhere from outside the repository.

Hatchling calls this when it builds. The address is that of `Repository` in pyproject.toml, and stands nowhere else.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s]+)\)")


def absolute(text, repository):
    """Returns Markdown whose links into the repository are absolute: [x](docs/y.md) to [x](https://.../docs/y.md)."""
    return LINK.sub(lambda found: f"]({repository.rstrip('/')}/{found[1]})", text)


class LongDescription(MetadataHookInterface):
    """Fills in `readme`, which pyproject.toml leaves to this hook."""

    def update(self, metadata):
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, metadata["urls"]["Repository"]),
        }
