"""Refuses a setting that is none of the texts its field may have, so that a misspelt one is not another experiment.

    check_literals(Block(norm="layernorm"))     # UserError: norm='layernorm' ... did you mean 'layer'?

Python itself never compares a value with its `Literal` annotation, and code that asks `if positions == "learned"` takes
any other text as the last of its cases.
"""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from levelfield.spec.errors import UserError, closest


def check_literals(value: object) -> None:
    """Raises UserError where a field with a `Literal` annotation holds anything else, and says what is nearest."""
    kind = type(value)
    for name, allowed in _choices(kind):
        given = getattr(value, name)
        if given not in allowed:
            known = [each for each in allowed if isinstance(each, str)]
            raise UserError(f"{kind.__name__} has no {name}={given!r}: {closest(str(given), known)}")


@cache
def _choices(kind: type) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Returns names and values of the fields of a class with few values; none where it names types it lacks."""
    fields = getattr(kind, "__dataclass_fields__", {})
    try:
        hints = get_type_hints(kind)
    except (NameError, AttributeError, TypeError):  # such as a type that is imported for checkers alone
        return ()
    found = ((name, _values(hints[name])) for name in fields if name in hints)
    return tuple((name, values) for name, values in found if values)


def _values(hint: Any) -> tuple[Any, ...]:
    """Returns the values that a hint allows; () where it is none of `Literal`, alone or with None."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        parts = [(None,) if part is type(None) else _values(part) for part in get_args(hint)]
        return sum(parts, ()) if all(parts) and any(part != (None,) for part in parts) else ()
    return ()
