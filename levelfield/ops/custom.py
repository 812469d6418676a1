"""Defines custom operators of torch: functions that counting passes and the compiler call without looking inside.

    @custom_op("double", "cpu")
    def _double(x: Tensor) -> Tensor: ...

    @_double.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

`torch.library.custom_op` does the same and imports torch's compiler at the first call, which takes a second: a fifth of
what a plan takes. These operators are registered at the level beneath, where a call also costs a quarter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])

NAMESPACE = "levelfield"  # an operator's full name in torch is "levelfield::NAME"
EVERY_DEVICE = "default"


class CustomOp:
    """An operator `torch.ops.levelfield.NAME`, called with the arguments of its function.

    name: without the namespace. function: changes none of its arguments and returns new tensors; annotated as
    `torch.library.infer_schema` reads it. device: the type on which it works, or `EVERY_DEVICE`.
    """

    def __init__(self, name: str, function: Callable[..., Any], device: str) -> None:
        self.name, self.function = f"{NAMESPACE}::{name}", function
        schema = torch.library.infer_schema(function, mutates_args=())
        torch.library.define(self.name, schema, tags=(torch.Tag.pt2_compliant_tag,))
        self.overload = getattr(getattr(torch.ops, NAMESPACE), name).default
        self.register_kernel(device)(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.overload(*args, **kwargs)

    def register_kernel(self, device: str) -> Callable[[Function], Function]:
        """Makes the decorated function the operator on devices of this type."""

        def register(function: Function) -> Function:
            torch.library.impl(self.name, device, function)
            return function

        return register

    def register_fake(self, function: Function) -> Function:
        """Makes the decorated function say the results' shapes and types where tensors have no values."""
        torch.library.register_fake(self.name, function)
        return function

    def register_autograd(self, backward: Callable[..., Any], setup_context: Callable[..., None]) -> None:
        """Gives the operator a backward pass, as `torch.library.register_autograd` takes it."""
        torch.library.register_autograd(self.name, backward, setup_context=setup_context)


def custom_op(name: str, device: str = EVERY_DEVICE) -> Callable[[Callable[..., Any]], CustomOp]:
    """Makes the decorated function an operator."""
    return lambda function: CustomOp(name, function, device)
