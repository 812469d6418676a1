"""Every operator that a package's kernel may stand for, with its naive twin and inputs of common sizes.

    for case in CASES:
        verdict = case.decide(torch.device("cuda"), torch.bfloat16)     # self-tests on that device, nothing remembered
        print(case.name, verdict.note or "plain")

For `levelfield list kernels` and for tests; layers reach kernels through their operators alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from levelfield.ops.attention.softmax import naive_attend_window
from levelfield.ops.conv.short import naive_short_conv
from levelfield.ops.linear_attention.decayed import naive_decayed_attention
from levelfield.ops.linear_attention.delta import naive_delta_rule
from levelfield.ops.linear_attention.delta_per_key import naive_delta_by_key
from levelfield.ops.ssm.selective import naive_selective_scan
from levelfield.ops.vendor.adapters import OPERATORS, Arguments, Operator
from levelfield.ops.vendor.dispatch import LENGTH, Verdict, decide


@dataclass(frozen=True)
class Case:
    """An operator at some widths. Tensors stand as shapes, B = 1 and T = 1: types and widths are all that counts."""

    name: str  # its own, with what distinguishes it
    operator: str
    twin: Callable[..., Any]
    shapes: tuple[Any, ...]
    serves: str  # mixers

    @property
    def table(self) -> Operator:
        return OPERATORS[self.operator]

    def inputs(self, device: torch.device, dtype: torch.dtype) -> Arguments:
        return tuple(torch.zeros(x, device=device, dtype=dtype) if isinstance(x, tuple) else x for x in self.shapes)

    def decide(self, device: torch.device, dtype: torch.dtype, length: int = LENGTH) -> Verdict:
        return decide(self.table, self.twin, self.inputs(device, dtype), length)


def _fading(name: str, operator: str, keys: int, values: int, groups: int, serves: str, by_key: bool) -> Case:
    decay = (1, 2, 1, keys) if by_key else (1, 2, 1)
    bonus = (2, keys) if operator.endswith("bonus") else None
    shapes = ((1, groups, 1, keys), (1, groups, 1, keys), (1, 2, 1, values), decay, None, bonus)
    return Case(name, operator, naive_decayed_attention, shapes, serves)


def _head(width: int) -> tuple[int, ...]:
    return (1, 1, 1, width)


CASES = (
    _fading("decay_by_head", "decay_by_head", 64, 64, 1, "mamba2, linear, performer, mlstm", False),
    _fading("decay_by_key", "decay_by_key", 32, 64, 2, "gla", True),
    _fading("decay_by_key_with_bonus", "decay_by_key_with_bonus", 64, 64, 2, "rwkv6", True),
    Case("delta_rule", "delta_rule", naive_delta_rule, (*[_head(64)] * 3, (1, 1, 1), None, None), "deltanet"),
    Case(
        "delta_rule, fading",
        "delta_rule",
        naive_delta_rule,
        (*[_head(64)] * 3, (1, 1, 1), (1, 1, 1), None),
        "gated_deltanet",
    ),
    Case("delta_by_key", "delta_by_key", naive_delta_by_key, (*[_head(64)] * 6, None), "rwkv7"),
    Case(
        "selective_scan",
        "selective_scan",
        naive_selective_scan,
        ((1, 1, 8), (1, 1, 8), (8, 16), (1, 1, 16), (1, 1, 16), None),
        "mamba",
    ),
    Case(
        "short_conv",
        "short_conv",
        naive_short_conv,
        ((1, 1, 64), (64, 1, 4), (64,), None),
        "mamba, mamba2, deltanet, gated_deltanet, mlstm",
    ),
    Case(
        "attend_window",
        "attend_window",
        naive_attend_window,
        (*[_head(64)] * 3, None, True, 64, 0),
        "longformer, attention with a window",
    ),
)


def from_state(case: Case) -> Case | None:
    """The same, going on from a state; None where kernels of the operator are not asked to."""
    arguments = case.table.arguments
    if "state" not in arguments:
        return None
    place = arguments.index("state")
    return replace(
        case, name=f"{case.name}, from a state", shapes=(*case.shapes[:place], (1,), *case.shapes[place + 1 :])
    )
