"""Caches tables of constants, such as angles of positions and windows, so that each is made once per setting.

A table must hold values and be usable in training, even if it is first made in inference mode or while operators are
counted on tensors without values. The decorator leaves those modes while a table is made. So making it is no part of
what is counted, and a count does not depend on which tables there were before.

    @table
    def angles(length: int, device: torch.device) -> Tensor: ...
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache, wraps
from typing import ParamSpec, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

P = ParamSpec("P")


def table(make: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Caches the last 16 results of a function that makes tensors, of any shape. Its arguments must be hashable."""

    @wraps(make)
    def plainly(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        modes = nullcontext() if torch.compiler.is_compiling() else _disable_current_modes()
        with unset_fake_temporarily(), modes, torch.inference_mode(False), torch.no_grad():
            return make(*args, **kwargs)

    return cast("Callable[P, Tensor]", lru_cache(maxsize=16)(plainly))
