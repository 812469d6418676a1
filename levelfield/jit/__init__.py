"""Compiles inner loops with numba: one decorator for operators, generated tasks and the search for duplicates.

    @compiled
    def total(x: np.ndarray) -> float: ...

numba keeps machine code on disk beside the source, and raises where that folder cannot be written, for instance in a
package installed for all users. `compiled` then compiles in memory instead, once in each process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal


def compiled(function: Callable[..., Any], *, error_model: Literal["python", "numpy"] = "python") -> Any:
    """The function as machine code that releases the interpreter's lock.

    error_model: "python" raises ZeroDivisionError where a loop divides by zero; "numpy" returns infinity or NaN, and
    spares the loop the check, without which LLVM can vectorise divisions.
    """
    import numba  # half a second, which commands that compile nothing should not pay

    try:
        return numba.njit(nogil=True, error_model=error_model, cache=True)(function)
    except RuntimeError:  # numba found no folder that it can write
        return numba.njit(nogil=True, error_model=error_model)(function)
