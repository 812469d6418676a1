"""Functions that torch's compiler calls without looking inside."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from levelfield.ops.opaque import hide, opaque


def compiled(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    torch.compiler.reset()
    return torch.compile(function, backend="eager", dynamic=True)


@pytest.mark.filterwarnings("ignore")  # torch's compiler uses parts of torch that are deprecated
@pytest.mark.parametrize("hidden", [True, False], ids=["hidden before", "met by the compiler"])
def test_the_compiler_does_not_look_inside(hidden: bool) -> None:
    compiling = []

    @opaque
    def doubled(x: Tensor, times: int = 2) -> Tensor:
        """Says what it does."""
        compiling.append(torch.compiler.is_compiling())
        return x * times

    def block(x: Tensor) -> Tensor:
        return doubled(x.sin()) + doubled(x.cos(), times=3).exp()

    assert (doubled.__name__, doubled.__doc__) == ("doubled", "Says what it does.")
    if hidden:
        hide()
    fast = compiled(block)
    for length in (3, 4, 5):
        x = torch.linspace(-1, 1, length, requires_grad=True)
        y, wanted = fast(x), block(x)
        torch.testing.assert_close(y, wanted)
        found, slope = (torch.autograd.grad(each.sum(), x)[0] for each in (y, wanted))
        torch.testing.assert_close(found, slope)
    assert compiling == [False] * 12


@pytest.mark.filterwarnings("ignore")  # torch's compiler uses parts of torch that are deprecated
def test_one_that_is_not_opaque_is_looked_into() -> None:
    """Shows that the test above can fail."""
    compiling = []

    def block(x: Tensor) -> Tensor:
        compiling.append(torch.compiler.is_compiling())
        return x * 2

    compiled(block)(torch.ones(3))
    assert compiling == [True]
