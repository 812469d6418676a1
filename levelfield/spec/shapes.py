"""Tells whether a value that was read has the shape that was written, by the type hints of a TypedDict.

    fault({"run": "a", "value": "high"}, Row)      # "value is no number"
    fault([1, 2], Row)                             # "it is no object"

Keys that the hints do not name are allowed, for another version may write more. Numbers are finite, whole ones fit
into 64 bits, and text can be written as UTF-8 and has no NUL, so that tables, figures and SQL can hold whatever passes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, NamedTuple, NotRequired, Required, get_args, get_origin, get_type_hints

LARGEST = 2**63
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which UTF-8 does not have
WORDS = {str: "text", int: "whole number", float: "number", bool: "truth value"}


def fault(value: Any, kind: Any, name: str = "it") -> str | None:
    """Returns what is wrong with `value` as `kind`, in words; None where nothing is.

    kind: str, int, float, bool, Any, list[kind], dict[str, kind], a TypedDict, a NotRequired of one of these, or one of
    these or None.
    """
    hint = _taken_apart(kind)
    if hint.kind is Any or (value is None and hint.optional):
        return None
    if hint.kind in WORDS:
        return None if _plain(value, hint.kind) else f"{name} is no {WORDS[hint.kind]}"
    return _several(value, hint.several, hint.item, name) if hint.several else _object(value, hint.kind, name)


class _Hint(NamedTuple):
    """A type hint taken apart. kind: without NotRequired and None. several, item: of a list or dict, which of the two,
    and the kind of its items."""

    kind: Any
    optional: bool
    several: type | None
    item: Any


@cache
def _taken_apart(kind: Any) -> _Hint:
    """Returns what a hint says, worked out once: a report asks it of every value in the rows of all runs."""
    kind = get_args(kind)[0] if get_origin(kind) in (NotRequired, Required) else kind
    optional = get_origin(kind) is UnionType
    kind = get_args(kind)[0] if optional else kind
    several = get_origin(kind) if get_origin(kind) in (list, dict) else None
    return _Hint(kind, optional, several, get_args(kind)[-1] if several else None)


def _several(value: Any, kind: type, each_kind: Any, name: str) -> str | None:
    if not isinstance(value, kind):
        return f"{name} is no {'list' if kind is list else 'object'}"
    each = value.items() if isinstance(value, dict) else enumerate(value)
    found = (fault(item, each_kind, f"{name}[{key}]") for key, item in each)
    return next((f for f in found if f), None)


def _object(value: Any, kind: Any, name: str) -> str | None:
    if not isinstance(value, Mapping):
        return f"{name} is no object"
    for key, (hint, needed) in _hints(kind).items():
        if key not in value and needed:
            return f"{key} is missing" if name == "it" else f"{name} lacks {key}"
        if key in value and (found := fault(value[key], hint, key if name == "it" else f"{name}.{key}")):
            return found
    return None


@cache
def _hints(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Returns the hint of each key, and whether the key is required, as `__required_keys__` is wrong where hints are
    text."""

    def needed(hint: Any) -> bool:
        return get_origin(hint) is Required or (kind.__total__ and get_origin(hint) is not NotRequired)

    return {key: (hint, needed(hint)) for key, hint in get_type_hints(kind, include_extras=True).items()}


def _plain(value: Any, kind: type) -> bool:
    if kind is str:
        return isinstance(value, str) and "\0" not in value and (value.isascii() or SURROGATE.search(value) is None)
    if kind is bool:
        return isinstance(value, bool)
    if kind is float and isinstance(value, float):
        return math.isfinite(value)
    bound = LARGEST if kind is int else 10**300
    return isinstance(value, int) and not isinstance(value, bool) and -bound <= value < bound
