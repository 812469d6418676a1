"""Tables of constants, made once for each setting: angles of positions, windows.

A table must have values and serve in training, whoever asks for it first: an inference mode, or a count of operators
on tensors without values, would otherwise leave behind one that can never be used again.

    @table
    def angles(length: int, device: torch.device) -> Tensor: ...
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

P = ParamSpec("P")


def table(make: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """The function, whose last 16 results are kept. Its arguments must be hashable."""

    @wraps(make)
    def plainly(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        with unset_fake_temporarily(), torch.inference_mode(False), torch.no_grad():
            return make(*args, **kwargs)

    return cast("Callable[P, Tensor]", lru_cache(maxsize=16)(plainly))
