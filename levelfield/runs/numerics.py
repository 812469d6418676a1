"""Applies a run's numerics to a device: says what the device lacks, and has torch compute as they say.

    check_model(numerics, model)        # or one sentence on why it cannot be
    check_device(numerics, device)      # or one sentence on why it cannot be
    with computing(numerics):           # float32 is float32 in here, or TF32 where that was asked for
        ...

Torch keeps the default dtype, the precision of float32 products and more in settings of the whole process or thread;
`computing` sets them for a run and puts them back, so that a run computes as its value says, whatever ran before it in
the same process and wherever in a notebook it is called.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from levelfield.model import ResidualBlock
from levelfield.spec.errors import UserError
from levelfield.spec.model import MixerConfig, Model
from levelfield.spec.numerics import Numerics

TRIED = 16  # steps of the sequences that a mixer is tried on, at most
AMPERE = (8, 0)  # the first compute capability with TF32 and bfloat16 in its matrix units


_GPU, _CPU = ("conv", "rnn"), ("matmul", "conv", "rnn")  # kinds of products whose precision torch has settings for
_USUAL: tuple[tuple[Callable[[], Any], Callable[[Any], object], Any], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    (partial(torch.is_autocast_enabled, "cpu"), partial(torch.set_autocast_enabled, "cpu"), False),
    (partial(torch.is_autocast_enabled, "cuda"), partial(torch.set_autocast_enabled, "cuda"), False),
)
"""Settings of torch: how to read and to write each, and what a run has."""


@contextmanager
def computing(numerics: Numerics) -> Iterator[None]:
    """Opens a scope in which torch computes as numerics say: new tensors are float32, float32 products are float32, or
    TF32 on a GPU where that is asked for, gradients are kept, and nothing is cast but by the run itself.

    By torch's own default products of a GPU are float32, and its convolutions and recurrent layers TF32.
    """
    cuda, cudnn, mkldnn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    of_gpu: list[Any] = [cuda.matmul, *(getattr(cudnn, kind) for kind in _GPU)]
    of_cpu: list[Any] = [getattr(mkldnn, kind) for kind in _CPU]
    precisions, values = [kind.fp32_precision for kind in (*of_gpu, *of_cpu)], [read() for read, *_ in _USUAL]
    try:
        for kind in of_cpu:
            kind.fp32_precision = "ieee"
        for kind in of_gpu:
            kind.fp32_precision = "tf32" if numerics.precision == "tf32" else "ieee"
        for _, write, usual in _USUAL:
            write(usual)
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for kind, precision in zip((*of_gpu, *of_cpu), precisions, strict=True):
            kind.fp32_precision = precision
        for (_, write, _), value in zip(_USUAL, values, strict=True):
            write(value)


def check_model(numerics: Numerics, model: Model) -> None:
    """Raises UserError where the model, or any other, cannot be computed so."""
    if numerics.recompute and model.block.norm == "batch":
        raise UserError("Recomputed blocks would count each batch twice in norm='batch': leave recompute out.")
    if numerics.by_length and model.block.norm == "batch":
        raise UserError("With norm='batch', a few examples of one length are no batch: leave by_length out.")
    for mixer in dict.fromkeys(model.mixers) if numerics.recompute or numerics.by_length else ():
        _check_mixer(numerics, model, mixer)
    if not numerics.shard:
        return
    if numerics.nproc == 1:
        raise UserError(
            "Parameters are sharded over several processes, and here is one: raise nproc, or leave shard out."
        )
    if numerics.by_length:
        raise UserError("Sharded processes cannot compute each length by itself (by_length): leave shard out.")
    if numerics.compile:
        raise UserError("Blocks whose parameters are sharded are not compiled: leave compile or shard out.")
    if model.block.norm == "scale":
        raise UserError("The gain of norm='scale' is a single number, which cannot be sharded: leave shard out.")


def _check_mixer(numerics: Numerics, model: Model, mixer: MixerConfig) -> None:
    """Raises UserError where a mixer keeps statistics of batches that would be others than in plain training."""
    name, (changed, normed) = mixer.label, _statistics(replace(model, mixers=(mixer,), depth=1))
    if numerics.recompute and changed:
        raise UserError(
            f"Recomputed blocks would count each batch twice in {changed} of the mixer {name}, which its forward pass "
            "changes: leave recompute out."
        )
    if numerics.by_length and normed:
        raise UserError(
            f"With batch normalisation ({normed} of the mixer {name}), a few examples of one length are no batch: "
            "leave by_length out."
        )


@cache
def _statistics(model: Model) -> tuple[str, str]:
    """Returns the first buffer that a training pass of the model's one mixer changes, and its first layer of batch
    normalisation; "" for what it does not have, or does not show on a short sequence."""
    layer = model.mixers[0].build(model.width, causal=model.causal, layer=0, generator=torch.Generator())
    named = {name: each for name, each in layer.named_modules() if isinstance(each, _BatchNorm)}
    before = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    with torch.random.fork_rng(devices=[]), suppress(Exception):  # whatever a user's own layer raises is said elsewhere
        x = torch.randn(2, min(TRIED, model.max_length or TRIED), model.width).requires_grad_()
        ResidualBlock(layer, model.block, model.width).train()(x, None)
    changed = (name for name, buffer in layer.named_buffers() if not _same(before.get(name), buffer))
    return next(changed, ""), next(iter(named), "")


def _same(before: Tensor | None, after: Tensor) -> bool:
    return before is not None and before.shape == after.shape and torch.equal(before.nan_to_num(), after.nan_to_num())


def check_device(numerics: Numerics, device: torch.device) -> None:
    """Raises UserError where the device cannot compute so."""
    precision = numerics.precision
    if precision != "float32" and device.type == "cuda":
        if torch.cuda.get_device_capability(device) < AMPERE:
            name = torch.cuda.get_device_name(device)
            raise UserError(f"{name} has no {precision}, which came with Ampere: take precision float32.")
    elif precision == "tf32":
        raise UserError(f"Precision tf32 is of NVIDIA GPUs, and this is {device.type}: take float32 or bf16.")
    elif precision == "bf16" and not torch.amp.autocast_mode.is_autocast_available(device.type):
        raise UserError(f"Torch has no bf16 autocast on {device.type}: take precision float32.")
    if numerics.compile:
        _check_compiler(device)


def _check_compiler(device: torch.device) -> None:
    if device.type == "cuda" and find_spec("triton") is None:
        raise UserError("Compiling for a GPU needs triton, which is not installed: install it, or leave compile out.")
    if device.type == "cpu" and not any(map(shutil.which, [*os.environ.get("CXX", "").split()[:1], "g++", "clang++"])):
        raise UserError("Compiling for a CPU needs a C++ compiler: install g++ or clang, or leave compile out.")
