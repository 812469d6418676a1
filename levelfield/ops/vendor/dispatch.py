"""Kernels of other packages in place of our plain operators: only on a GPU, and only where they agree with us.

    given = accelerated.attempt("delta_rule", naive_delta_rule, (q, k, v, beta, log_decay, state))
    if given is not None:
        return given                       # flash-linear-attention's; otherwise the plain operator goes on

At the first call of an operator with new types and widths, its candidates (`ops/adapters.py`) are imported in turn and
tried on small random inputs of those types and widths: values and all gradients must be those of the naive twin, which
runs in float64 on the CPU. The first that agrees is used from then on. A package that is missing is passed over in
silence; one that is there and fails leaves its reason in `notes`, which the ledger keeps.

Always plain: other devices, float64, a few steps (a launch is not worth it), tensors without values and passes that
count operators (FLOPs never depend on a kernel), and everything with LEVELFIELD_KERNELS=plain.
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

DEVICES = {"cuda"}  # tests of the mechanism add "cpu"
SWITCH = "LEVELFIELD_KERNELS"
FEWEST = 16  # steps
LENGTH = 131  # steps of a self-test: two chunks of 64 and some that fill none
TOLERANCE = {torch.float32: 5e-3, torch.bfloat16: 2e-2, torch.float16: 2e-2}
"""Of a value, |ours - theirs| / |ours|; a gradient may be off by twice as much. Their products round float32 to ten
bits (TF32), and that of float32 is the tolerance of flash-linear-attention's own tests."""

Naive = Callable[..., Any]


@dataclass(frozen=True)
class Verdict:
    """On one kernel, or on all of an operator: what is called, or None for the plain operator; and why."""

    call: Callable[..., Any] | None
    note: str  # empty where there is nothing to say


_verdicts: dict[tuple[Any, ...], Verdict] = {}
_notes: set[str] = set()


def attempt(operator: str, naive: Naive, inputs: Arguments) -> Any:
    """What the chosen kernel makes of `inputs`, in the form of `naive(*inputs)`; None where the plain operator is to
    run.

    inputs: the positional arguments of the naive twin. Raises only what a GPU without memory raises.
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
        except Exception as error:  # whatever a stranger's kernel raises, the plain operator can still run
            verdict = _verdicts[key] = Verdict(None, f"{verdict.note}, then refused: {_reason(error)}")
    if verdict.note:
        _notes.add(f"{operator}: {verdict.note}")
    return result


def decide(table: Operator, naive: Naive, inputs: Arguments, length: int = LENGTH) -> Verdict:
    """The first candidate that passes its self-test at inputs of the same types, widths and device as these."""
    notes = []
    for kernel in table.kernels:
        verdict = judge(kernel, table, naive, inputs, length)
        if verdict.note:
            notes.append(verdict.note)
        if verdict.call is not None:
            return replace(verdict, note="; ".join(notes))
    return Verdict(None, "plain; " + "; ".join(notes) if notes else "")


def judge(kernel: Kernel, table: Operator, naive: Naive, inputs: Arguments, length: int = LENGTH) -> Verdict:
    """One candidate's self-test."""
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
    """The largest relative error of results and gradients, where it was, and what is wrong ("" where nothing is)."""
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
        if not error <= allowed:  # also where it is not a number
            return error, name, f"{name} off by {error:.0e}"
        if error >= worst:
            worst, where = error, name
    return worst, where, ""


def _results(function: Callable[..., Any], inputs: list[Any], table: Operator) -> dict[str, Tensor]:
    """Values, and the gradients of a fixed mixture of them, by name, all in float64 on the CPU."""
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
    generator = torch.Generator().manual_seed(number)
    return torch.randn(like.shape, dtype=torch.float64, generator=generator)


def _distance(got: Tensor, want: Tensor) -> float:
    """Relative to the size of `want`; infinite where shapes differ."""
    if got.shape != want.shape:
        return torch.inf
    return float((got - want).norm() / want.norm().clamp(min=1e-30))


def _ordinary(inputs: Arguments) -> bool:
    """Tensors with values, in a pass that nobody watches or compiles; and kernels are not switched off."""
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
    """One line of at most 120 characters."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__} {lines[0]}".strip()[:120]


@contextmanager
def _silence() -> Iterator[None]:
    """Of what packages say at every call, such as that float32 is slow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def notes() -> list[str]:
    """What ran, or was refused and why, since `forget`: "gla: fla chunk_gla 0.6.0 (off by 8e-04 in gradient of q)"."""
    return sorted(_notes)


def forget() -> None:
    """Empties `notes`; verdicts stand."""
    _notes.clear()


def reset() -> None:
    """Forgets verdicts too, for tests."""
    _verdicts.clear()
    _notes.clear()
