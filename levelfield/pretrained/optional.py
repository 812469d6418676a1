"""Imports optional packages, and says in one line what a library complains of.

transformers = needed("transformers")       # UserError that says what to install, where it is absent
"""

from __future__ import annotations

from typing import Any

from levelfield.spec import UserError


def needed(package: str) -> Any:
    """The module of an optional package. Raises UserError that says how to install it."""
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as error:
        raise UserError(f"This needs the package {package}: pip install 'levelfield[text]'.") from error


def first_line(error: Exception) -> str:
    """What a library complains of, in one line that ends a sentence."""
    text = " ".join(str(error).split("\n\n")[0].split())
    return f"{type(error).__name__}: {text[:200].rstrip('.')}."
