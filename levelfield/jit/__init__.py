"""Compiles inner loops with numba: one decorator for operators, generated tasks and the search for duplicates.

    @compiled
    def total(x: np.ndarray) -> float: ...

numba keeps machine code on disk beside the source, and raises where that folder cannot be written, for instance in a
package installed for all users. `compiled` then compiles in memory instead, once in each process.

What is kept has the code of all that a function calls in it, but numba makes it anew only where the function's own file
has changed. So `compiled` adds to what it goes by the other files that this one takes functions, classes and numbers
from.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from numbers import Number
from pathlib import Path
from typing import Any, Literal


def compiled(function: Callable[..., Any], *, error_model: Literal["python", "numpy"] = "python") -> Any:
    """The function as machine code that releases the interpreter's lock.

    error_model: "python" raises ZeroDivisionError where a loop divides by zero; "numpy" returns infinity or NaN, and
    spares the loop the check, without which LLVM can vectorise divisions.
    """
    import numba  # half a second, which commands that compile nothing should not pay

    try:
        made: Any = numba.njit(nogil=True, error_model=error_model, cache=True)(function)
        kept = made._cache._cache_file
        kept._source_stamp = (kept._source_stamp, error_model, *_decided_by(function))
    except (RuntimeError, AttributeError, OSError):  # numba found no folder that it can write, or keeps code otherwise
        return numba.njit(nogil=True, error_model=error_model)(function)
    return made


def _decided_by(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
    """Returns what decides a function's machine code besides its own file: of each file of levelfield or of its package
    that this one takes something from, directly or by way of others, a hash and its numbers."""
    found: dict[str, tuple[Any, ...]] = {}
    packages, left = [name.partition(".")[0] for name in (function.__module__, __name__)], [function.__module__]
    while left:
        name = left.pop()
        module = sys.modules.get(name)
        if name in found or module is None or name.partition(".")[0] not in packages:
            continue
        values = list(vars(module).items())
        numbers = [(key, repr(value)) for key, value in values if isinstance(value, Number)]
        found[name] = name, _hash(module.__file__), *numbers
        left += [where for _, value in values if isinstance(where := getattr(value, "__module__", None), str)]
    return [found[name] for name in sorted(found)]


@cache
def _hash(file: str | None) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
