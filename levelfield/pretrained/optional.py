"""Imports optional packages, and turns a library's exception into one line.

transformers = needed("transformers")       # UserError with the command that installs it, where it is absent
"""

from __future__ import annotations

from typing import Any

from levelfield.spec import UserError

EXTRAS = {"accelerate": "spread"}  # of packages that the extra of language models does not bring


class Missing(UserError):
    """Raised where an optional package is not installed."""


def needed(package: str) -> Any:
    """Imports an optional package. Raises Missing with the command that installs it."""
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as error:
        extra = EXTRAS.get(package, "text")
        raise Missing(f"This needs the package {package}: pip install 'levelfield[{extra}]'.") from error


def first_line(error: Exception) -> str:
    """Returns the type and the first paragraph of an exception as one line, which ends with a full stop."""
    text = " ".join(str(error).split("\n\n")[0].split())
    return f"{type(error).__name__}: {text[:200].rstrip('.')}."
