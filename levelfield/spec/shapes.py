"""Tells whether a value that was read has the shape that was written, by the type hints of a TypedDict.

    fault({"run": "a", "value": "high"}, Row)      # "value is no number"
    fault([1, 2], Row)                             # "it is no object"

Keys that the hints do not name are allowed, for another version may write more. Numbers are finite, whole ones fit
into 64 bits, and text can be written as UTF-8 and has no NUL, so that tables, figures and SQL can hold whatever passes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, NotRequired, Required, get_args, get_origin, get_type_hints, is_typeddict

LARGEST = 2**63
WORDS = {str: "text", int: "whole number", float: "number", bool: "truth value"}


def fault(value: Any, kind: Any, name: str = "it") -> str | None:
    """Returns what is wrong with `value` as `kind`, in words; None where nothing is.

    kind: str, int, float, bool, Any, list[kind], dict[str, kind], a TypedDict, a NotRequired of one of these, or one of
    these or None.
    """
    if get_origin(kind) in (NotRequired, Required):
        kind = get_args(kind)[0]
    if get_origin(kind) is UnionType:
        if value is None:
            return None
        kind = get_args(kind)[0]
    if kind is Any:
        return None
    if is_typeddict(kind):
        return _object(value, kind, name)
    if get_origin(kind) in (list, dict):
        return _several(value, kind, name)
    return None if _plain(value, kind) else f"{name} is no {WORDS[kind]}"


def _several(value: Any, kind: Any, name: str) -> str | None:
    if not isinstance(value, get_origin(kind)):
        return f"{name} is no {'list' if isinstance([], get_origin(kind)) else 'object'}"
    each = value.items() if isinstance(value, dict) else enumerate(value)
    found = (fault(item, get_args(kind)[-1], f"{name}[{key}]") for key, item in each)
    return next((f for f in found if f), None)


def _object(value: Any, kind: Any, name: str) -> str | None:
    if not isinstance(value, Mapping):
        return f"{name} is no object"
    for key, hint in _hints(kind).items():
        needed = get_origin(hint) is Required or (kind.__total__ and get_origin(hint) is not NotRequired)
        if key not in value and needed:
            return f"{key} is missing" if name == "it" else f"{name} lacks {key}"
        if key in value and (found := fault(value[key], hint, key if name == "it" else f"{name}.{key}")):
            return found
    return None


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Returns the hints with Required and NotRequired in them, as `__required_keys__` is wrong where hints are text."""
    return get_type_hints(kind, include_extras=True)


def _plain(value: Any, kind: type) -> bool:
    if kind is str:
        return isinstance(value, str) and not any(x == "\0" or "\ud800" <= x <= "\udfff" for x in value)
    if kind is bool:
        return isinstance(value, bool)
    if kind is float and isinstance(value, float):
        return math.isfinite(value)
    bound = LARGEST if kind is int else 10**300
    return isinstance(value, int) and not isinstance(value, bool) and -bound <= value < bound
