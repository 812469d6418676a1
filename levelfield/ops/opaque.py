"""Keeps torch's compiler out of operators that are written by hand: loops over chunks, buffers written in place.

    @opaque
    def delta_rule(q: Tensor, ...) -> tuple[Tensor, Tensor]: ...

The compiler gains nothing inside of them, where a step is products of matrices. It takes minutes to unroll their loops,
again for other numbers of chunks; what it makes of them can be half as fast; and at some lengths it is wrong without a
word: its kernels read of a buffer what is written later. So it calls these functions as they are, and compiles what is
around them.

`torch.compiler.disable` does that, but imports the compiler, which takes a second, so it is called when something is
compiled for the first time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_open: list[functools.partial[Any]] = []  # the functions that are not hidden yet


def opaque(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Makes the decorated function one that torch's compiler calls without looking inside."""

    @functools.wraps(function)
    def plain(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if torch.compiler.is_compiling():
            _hidden(hide)()
            return _hidden(function)(*args, **kwargs)
        return function(*args, **kwargs)

    # A call of `partial` is no frame of Python, which the compiler would compile by itself. What it calls can be set.
    made = functools.partial(plain)
    functools.update_wrapper(made, function)
    _open.append(made)
    return made


def hide() -> None:
    """Hides the opaque functions from the compiler. It happens by itself where the compiler first meets one of them,
    which then compiles twice what is around it."""
    for each in _open:
        each.__setstate__((_hidden(vars(each)["__wrapped__"]), (), {}, vars(each)))  # pyright: ignore[reportAttributeAccessIssue]
    _open.clear()


def _hidden(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    return torch.compiler.disable(function)  # pyright: ignore[reportReturnType]
