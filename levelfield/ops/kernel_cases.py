"""Lists every operator that a package's kernel may stand for, with its naive twin and inputs of common sizes.

    for case in CASES:
        verdict = case.decide(torch.device("cuda"), torch.bfloat16)     # a self-test on that device; nothing is cached
        print(case.name, verdict.note or "plain")

`levelfield list kernels` and tests use this list; layers reach kernels only through their operators.
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
    """An operator at some widths. Tensors are given as shapes with B = 1 and T = 1: only types and widths matter."""

    name: str  # the operator's, with what distinguishes this case
    operator: str
    twin: Callable[..., Any]
    shapes: tuple[Any, ...]
    serves: str  # the mixers that use it

    @property
    def table(self) -> Operator:
        """The operator's kernels and arguments."""
        return OPERATORS[self.operator]

    def inputs(self, device: torch.device, dtype: torch.dtype) -> Arguments:
        """The arguments, with zeros of the case's shapes for tensors."""
        return tuple(torch.zeros(x, device=device, dtype=dtype) if isinstance(x, tuple) else x for x in self.shapes)

    def decide(self, device: torch.device, dtype: torch.dtype, length: int = LENGTH) -> Verdict:
        """Finds the kernel that would run there, by self-tests over `length` steps."""
        return decide(self.table, self.twin, self.inputs(device, dtype), length)


def _decayed(operator: str, keys: int, groups: int, serves: str) -> Case:
    """Attention with decay: two heads of 64 value channels, whose queries and keys come in `groups`."""
    decay = (1, 2, 1) if operator == "decay_by_head" else (1, 2, 1, keys)
    bonus = (2, keys) if operator.endswith("bonus") else None
    shapes = ((1, groups, 1, keys), (1, groups, 1, keys), (1, 2, 1, 64), decay, None, bonus)
    return Case(operator, operator, naive_decayed_attention, shapes, serves)


def _head(width: int) -> tuple[int, ...]:
    return (1, 1, 1, width)


CASES = (
    _decayed("decay_by_head", keys=64, groups=1, serves="mamba2, mamba3, linear, performer, mlstm, mesanet"),
    _decayed("decay_by_key", keys=32, groups=2, serves="gla, hgrn2"),
    _decayed("decay_by_key_with_bonus", keys=64, groups=2, serves="rwkv6"),
    Case(
        "delta_rule",
        "delta_rule",
        naive_delta_rule,
        (*[_head(64)] * 3, (1, 1, 1), None, None),
        "deltanet, deltaproduct",
    ),
    Case(
        "delta_rule with decay",
        "delta_rule",
        naive_delta_rule,
        (*[_head(64)] * 3, (1, 1, 1), (1, 1, 1), None),
        "gated_deltanet, deltaproduct with gates",
    ),
    Case("delta_by_key", "delta_by_key", naive_delta_by_key, (*[_head(64)] * 6, None), "rwkv7"),
    Case(
        "selective_scan",
        "selective_scan",
        naive_selective_scan,
        ((1, 1, 8), (1, 1, 8), (8, 16), (1, 1, 16), (1, 1, 16), None),
        "mamba, hymba",
    ),
    Case(
        "short_conv",
        "short_conv",
        naive_short_conv,
        ((1, 1, 64), (64, 1, 4), (64,), None),
        "mamba, mamba2, log_linear_mamba2, hymba, deltanet, gated_deltanet, deltaproduct, kda, mlstm, slstm, path, "
        "mesanet",
    ),
    Case(
        "attend_window",
        "attend_window",
        naive_attend_window,
        (*[_head(64)] * 3, None, True, 64, 0),
        "longformer, nsa, attention with a window, hymba with a window",
    ),
)


def from_state(case: Case) -> Case | None:
    """The same case starting from a state, or None if the operator's kernels are never given one."""
    arguments = case.table.arguments
    if "state" not in arguments:
        return None
    place = arguments.index("state")
    return replace(
        case, name=f"{case.name}, from a state", shapes=(*case.shapes[:place], (1,), *case.shapes[place + 1 :])
    )
