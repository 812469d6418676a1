"""Compares flash-linear-attention's kernels with our naive twins without a GPU: Triton interprets them on the CPU.

    TRITON_INTERPRET=1 python benchmarks/interpret_kernels.py [--length 67] [--width 16] [--only delta_rule]

This runs their code unchanged, through our adapters, and so checks layout, scale, sign, states and gradients in true
float32. It cannot show what a compiler makes of the code, or the effect of TF32's ten bits; the self-test on a GPU does
that. Triton's interpreter lacks three things, which are supplied here. It cannot choose among tunings, so every kernel
uses its first one. Numbers in its loops are not tensors. A name bound to `gather` before the interpreter replaces it
keeps the old function. NumPy must be older than 2.4. The interpreter's bfloat16 is unreliable, so float16 stands for
16-bit types.
"""

from __future__ import annotations

import argparse
import builtins
import importlib
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch


class Count(int):
    def to(self, *_: Any, **__: Any) -> Count:
        return self


def counts(*bounds: int) -> Iterator[Count]:
    return map(Count, builtins.range(*bounds))


def prepare() -> None:
    from triton.runtime.autotuner import Autotuner

    begin = Autotuner.__init__

    def first_tuning(self: Any, fn: Any, names: Any, configs: Any, *more: Any, **named: Any) -> None:
        begin(self, fn, names, configs[:1], *more, **named)

    Autotuner.__init__ = first_tuning


def supply() -> None:
    """Replaces `range` and `gather` in all modules of the package that are loaded so far."""
    import triton.language as language

    for name, module in list(sys.modules.items()):
        if name.startswith("fla."):
            vars(module)["range"] = counts
            if "gather" in vars(module):
                vars(module)["gather"] = lambda *given, **named: language.gather(*given, **named)


def narrowed(shape: Any, width: int) -> Any:
    return tuple(min(size, width) for size in shape) if isinstance(shape, tuple) else shape


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=67)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--only", default="")
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    asked = parser.parse_args()
    prepare()
    from levelfield.ops import kernel_cases
    from levelfield.ops.vendor import dispatch

    for case in filter(None, (one for c in kernel_cases.CASES for one in (c, kernel_cases.from_state(c)))):
        case = replace(case, shapes=tuple(narrowed(x, asked.width) for x in case.shapes))
        for kernel in case.table.kernels:
            if not kernel.module.startswith("fla.") or not case.operator.startswith(asked.only):
                continue
            importlib.import_module(kernel.module)
            supply()
            started = time.monotonic()
            inputs = case.inputs(torch.device("cpu"), getattr(torch, asked.dtype))
            verdict = dispatch.validate(kernel, case.table, case.twin, inputs, asked.length)
            print(f"{case.name}: {verdict.note or 'not asked'} ({time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
