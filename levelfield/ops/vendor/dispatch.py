"""Runs kernels of other packages in place of our plain operators: only on a GPU, and only where the results agree.

    given = try_kernel("delta_rule", naive_delta_rule, (q, k, v, beta, log_decay, state))
    if given is not None:
        return given                       # flash-linear-attention's result; otherwise the plain operator runs

At the first call of an operator with new types and widths, its candidates (`vendor/adapters.py`) are imported in turn
and validated on small random inputs of those types and widths: values and all gradients must be those of the naive
twin, which runs in float64 on the CPU. The first candidate that agrees is used from then on. A package that is not
installed is skipped silently; one that is installed and fails leaves its reason in `kernel_log`, which goes to the
ledger.

The plain operator always runs on other devices, in float64, for a few steps (where launching a kernel takes longer),
for tensors without values and in passes that count operators (FLOPs never depend on a kernel), and everywhere with
LEVELFIELD_KERNELS=plain.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from levelfield.ops.vendor.adapters import OPERATORS, Arguments, Kernel, Operator

DEVICES = {"cuda"}  # where kernels may run; tests of the mechanism add "cpu"
SWITCH = "LEVELFIELD_KERNELS"
FEWEST = 16  # steps that are worth a kernel
LENGTH = 131  # steps of a self-test: two chunks of 64 and a part of a third
TOLERANCE = {torch.float32: 5e-3, torch.bfloat16: 2e-2, torch.float16: 2e-2}
"""Largest relative error of a value, |ours - theirs| / |ours|, by type; a gradient may be off by twice as much.

The kernels round factors of float32 products to ten bits (TF32), so float32 has the tolerance of
flash-linear-attention's own tests.
"""

Naive = Callable[..., Any]


@dataclass(frozen=True)
class Verdict:
    """What is called for an operator, or None for the plain operator, and why."""

    call: Callable[..., Any] | None
    note: str  # empty where there is nothing to say


_verdicts: dict[tuple[Any, ...], Verdict] = {}
_log: set[str] = set()


def try_kernel(operator: str, naive: Naive, inputs: Arguments) -> Any:
    """The chosen kernel's result, in the form of `naive(*inputs)`, or None where the plain operator is to run.

    inputs: the positional arguments of the naive twin, whose docstring gives their shapes. Raises only
    `torch.OutOfMemoryError`.
    """
    first = inputs[0]
    if first.device.type not in DEVICES or not _ordinary(inputs):
        return None
    table = OPERATORS[operator]
    if first.dtype not in TOLERANCE or first.shape[table.steps] < FEWEST:
        return None
    key = (operator, first.device, table.widths(inputs), *(_kind(x) for x in inputs))
    verdict = _verdicts.get(key) or _verdicts.setdefault(key, decide(table, naive, inputs))
    result = None
    if verdict.call is not None:
        try:
            result = verdict.call(*inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a kernel may raise anything, and the plain operator can still run
            verdict = _verdicts[key] = Verdict(None, f"{verdict.note}, then refused: {_reason(error)}")
    if verdict.note:
        _log.add(f"{operator}: {verdict.note}")
    return result


def decide(table: Operator, naive: Naive, inputs: Arguments, length: int = LENGTH) -> Verdict:
    """The first candidate that passes its self-test at inputs of the same types, widths and device as these."""
    notes = []
    for kernel in table.kernels:
        verdict = validate(kernel, table, naive, inputs, length)
        if verdict.note:
            notes.append(verdict.note)
        if verdict.call is not None:
            return replace(verdict, note="; ".join(notes))
    return Verdict(None, "plain; " + "; ".join(notes) if notes else "")


def validate(kernel: Kernel, table: Operator, naive: Naive, inputs: Arguments, length: int = LENGTH) -> Verdict:
    """The verdict of one candidate's self-test, over `length` steps."""
    if not kernel.takes(inputs):
        return Verdict(None, "")
    try:
        function = getattr(importlib.import_module(kernel.module), kernel.function)
    except ModuleNotFoundError as error:
        if error.name == kernel.module.split(".")[0]:
            return Verdict(None, "")
        return Verdict(None, f"{kernel} refused: {_reason(error)}")
    except Exception as error:  # an extension built for another torch can raise anything
        return Verdict(None, f"{kernel} refused: {_reason(error)}")
    name = f"{kernel} {_version(kernel)}".strip()

    def call(*given: Any) -> Any:
        with torch.autocast(given[0].device.type, enabled=False), _silence():
            return kernel.adapt(function, *given)

    try:
        worst, where, fault = self_test(call, table, naive, inputs, length)
    except Exception as error:
        return Verdict(None, f"{name} refused: {_reason(error)}")
    if fault:
        return Verdict(None, f"{name} refused: {fault}")
    return Verdict(call, f"{name} (off by {worst:.0e} in {where})")


def self_test(
    call: Callable[..., Any], table: Operator, naive: Naive, inputs: Arguments, length: int
) -> tuple[float, str, str]:
    """The largest relative error of results and gradients, where it occurs, and what is wrong ("" if nothing is)."""
    sample = table.sample(inputs, length, torch.Generator().manual_seed(length))
    ours = [x.detach().to(given.dtype) if isinstance(x, Tensor) else x for x, given in zip(sample, inputs, strict=True)]
    theirs = [x.to(inputs[0].device) if isinstance(x, Tensor) else x for x in ours]
    exact = [x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in ours]
    with torch.inference_mode(False), torch.enable_grad():
        want = _results(naive, exact, table)
        got = _results(call, theirs, table)
    limit, worst, where = TOLERANCE[inputs[0].dtype], 0.0, "nothing"
    for name, right in want.items():
        error = _distance(got[name], right)
        allowed = 2 * limit if name.startswith("gradient") else limit
        if not error <= allowed:  # true of NaN as well
            return error, name, f"{name} off by {error:.0e}"
        if error >= worst:
            worst, where = error, name
    return worst, where, ""


def _results(function: Callable[..., Any], inputs: list[Any], table: Operator) -> dict[str, Tensor]:
    """Results by name, and the gradients of a fixed weighted sum of them, all float64 on the CPU."""
    leaves = [x.clone().requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x for x in inputs]
    out = function(*leaves)
    out = out if isinstance(out, tuple) else (out,)
    named = dict(zip(table.results, out, strict=True))
    mixture = [
        (value.double() * _weights(value, number).to(value.device)).sum()
        for number, (name, value) in enumerate(named.items())
        if name not in table.flat
    ]
    learnt = {
        name: x for name, x in zip(table.arguments, leaves, strict=True) if isinstance(x, Tensor) and x.requires_grad
    }
    grads = torch.autograd.grad(torch.stack(mixture).sum(), list(learnt.values()), allow_unused=True)
    for (name, leaf), grad in zip(learnt.items(), grads, strict=True):
        named[f"gradient of {name}"] = torch.full_like(leaf, torch.nan) if grad is None else grad
    return {name: value.detach().double().cpu() for name, value in named.items()}


def _weights(like: Tensor, number: int) -> Tensor:
    """The weights of result `number` in that sum: float64 of the same shape."""
    generator = torch.Generator().manual_seed(number)
    return torch.randn(like.shape, dtype=torch.float64, generator=generator)


def _distance(got: Tensor, want: Tensor) -> float:
    """The error of `got` relative to the norm of `want`, infinite where their shapes differ."""
    if got.shape != want.shape:
        return torch.inf
    return float((got - want).norm() / want.norm().clamp(min=1e-30))


def _ordinary(inputs: Arguments) -> bool:
    """True for tensors with values in a pass that is neither counted nor compiled, unless kernels are switched off."""
    real = all(type(x) in (Tensor, torch.nn.Parameter) for x in inputs if isinstance(x, Tensor))
    watched = _get_current_dispatch_mode() is not None or torch.compiler.is_compiling()
    return real and not watched and os.environ.get(SWITCH) != "plain"


def _kind(x: Any) -> Any:
    return x.dtype if isinstance(x, Tensor) else x


def _version(kernel: Kernel) -> str:
    try:
        return importlib.metadata.version(kernel.package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _reason(error: BaseException) -> str:
    """The error as one line of at most 120 characters."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__} {lines[0]}".strip()[:120]


@contextmanager
def _silence() -> Iterator[None]:
    """Suppresses the warnings that packages repeat at every call, such as that float32 is slow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def kernel_log() -> list[str]:
    """The kernels that ran, or were refused and why, since `clear_log`.

    A line reads like "gla: fla chunk_gla 0.6.0 (off by 8e-04 in gradient of q)".
    """
    return sorted(_log)


def clear_log() -> None:
    """Empties `kernel_log`; verdicts stay."""
    _log.clear()


def clear_cache() -> None:
    """Empties `kernel_log` and drops all verdicts, for tests."""
    _verdicts.clear()
    _log.clear()
