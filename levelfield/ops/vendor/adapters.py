"""Lists the kernels of other packages that may stand for our operators, and adapts our arguments to theirs.

Every adapter takes the arguments of the naive twin, in its order, and returns results of the same form. Each entry is a
claim, which `vendor/dispatch.py` checks on the machine before the kernel is used. `docs/kernels.md` says which claims
were checked where, and which kernels were left out and why.

Packages are imported by name at the first call that could use them, never with levelfield, because importing them takes
seconds and needs a GPU's compiler.
Letters: B batch, H heads, G heads of keys, T steps, K and V channels, E channels, N states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Generator, Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

Arguments = tuple[Any, ...]
"""The arguments of a naive twin, all by position: tensors, numbers, and None."""


def anything(inputs: Arguments) -> bool:
    """Accepts all arguments: what `Kernel.takes` is by default."""
    return True


@dataclass(frozen=True)
class Kernel:
    """A function of a package. adapt(function, *inputs) calls it with the arguments of the naive twin."""

    package: str
    module: str
    function: str
    adapt: Callable[..., Any]
    takes: Callable[[Arguments], bool] = anything
    limits: str = ""  # what it does not take, for `levelfield list kernels`

    def __str__(self) -> str:
        return f"{self.module.split('.')[0]} {self.function}"


@dataclass(frozen=True)
class Operator:
    """One of our operators: its candidates in order of preference, and what a self-test needs to know about it."""

    kernels: tuple[Kernel, ...]
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    steps: int  # index of the time dimension of the first argument
    widths: Callable[[Arguments], tuple[int, ...]]  # the sizes that kernels are compiled for
    sample: Callable[[Arguments, int, Generator], Arguments]  # small inputs of the same widths, of so many steps
    flat: tuple[str, ...] = ()  # results without a gradient


# Attention with decay: q, k, v, log_decay, state, bonus; heads before steps


def _simple_gla(function: Any, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Any, bonus: None) -> Any:
    q, k = (x.repeat_interleave(v.shape[1] // x.shape[1], 1) for x in (q, k))
    return _call_fla(function, (*_alike(q, k, v), log_decay.float()), state)


def _gla(function: Any, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Any, bonus: None) -> Any:
    return _call_fla(function, (*_alike(q, k, v), log_decay.float()), state)


def _rwkv6(function: Any, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Any, bonus: Tensor) -> Any:
    return _call_fla(function, (*_alike(q, k, v), log_decay.float()), state, bonus.float())


def _call_fla(function: Any, parts: tuple[Tensor, ...], state: Tensor | None, *more: Tensor) -> tuple[Tensor, Tensor]:
    """Calls flash-linear-attention, which has steps before heads and scales the scores unless told not to.

    parts: (B, H, T, X) or (B, H, T) each -> (B, H, T, V) and the last state, (B, H, K, V).
    """
    wide = torch.promote_types(parts[0].dtype, torch.float32)
    turned = (x.transpose(1, 2).contiguous() for x in parts)
    start = None if state is None else state.float()
    y, last = function(*turned, *more, scale=1.0, initial_state=start, output_final_state=True)
    return y.transpose(1, 2).to(wide), last.to(wide)


def _alike(*parts: Tensor) -> list[Tensor]:
    """The tensors in the widest of their types, in their shapes."""
    kind = parts[0].dtype
    for x in parts:
        kind = torch.promote_types(kind, x.dtype)
    return [x.to(kind) for x in parts]


def _decayed_widths(inputs: Arguments) -> tuple[int, ...]:
    q, v = inputs[0], inputs[2]
    return q.shape[3], v.shape[3], v.shape[1] // q.shape[1]


def _decayed_sample(inputs: Arguments, length: int, draw: Generator) -> Arguments:
    keys, values, shared = _decayed_widths(inputs)
    heads, by_key = 2 * shared, inputs[3].dim() == 4
    q, k = (torch.randn(2, 2, length, keys, generator=draw) * keys**-0.25 for _ in range(2))
    v = torch.randn(2, heads, length, values, generator=draw)
    decay = log_decays((2, heads, length, keys) if by_key else (2, heads, length), draw)
    state = None if inputs[4] is None else torch.randn(2, heads, keys, values, generator=draw)
    bonus = None if inputs[5] is None else torch.randn(heads, keys, generator=draw)
    return q, k, v, decay, state, bonus


def log_decays(shape: tuple[int, ...], draw: Generator) -> Tensor:
    """Random log-decays of the given shape, as mixers have them: from almost none to e^-30 in a step."""
    return -torch.empty(shape).uniform_(-8, 3.4, generator=draw).exp()


# The delta rule: q, k, v, beta, log_decay, state; heads before steps


def _delta(
    function: Any, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: None, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    return _call_fla(function, (*_alike(q, k, v), beta), state)


def _plain_delta(inputs: Arguments) -> bool:
    return inputs[4] is None and all(x.dtype != torch.float32 for x in inputs[:3])


def _gated_delta(
    function: Any, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor | None, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Puts the decays before beta, as the kernel has them; where there are none, zeros change nothing."""
    decays = torch.zeros_like(beta, dtype=torch.float32) if log_decay is None else log_decay.float()
    return _call_fla(function, (*_alike(q, k, v), decays, beta.float()), state)


def _delta_widths(inputs: Arguments) -> tuple[int, ...]:
    return inputs[0].shape[3], inputs[2].shape[3]


def _delta_sample(inputs: Arguments, length: int, draw: Generator) -> Arguments:
    keys, values = _delta_widths(inputs)
    q, k = (F.normalize(torch.randn(2, 2, length, keys, generator=draw), dim=-1) for _ in range(2))
    v, beta = torch.randn(2, 2, length, values, generator=draw), 2 * torch.rand(2, 2, length, generator=draw)
    decay = None if inputs[4] is None else log_decays((2, 2, length), draw)
    state = None if inputs[5] is None else torch.randn(2, 2, keys, values, generator=draw)
    return q, k, v, beta, decay, state


# RWKV-7's delta rule: q, k, v, a, b, log_decay, state; steps before heads


def _rwkv7(
    function: Any, q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, log_decay: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k, v, a, b = (x.contiguous() for x in _alike(q, k, v, a, b))
    start = None if state is None else state.float()
    named = {"r": q, "w": log_decay.float().contiguous(), "k": k, "v": v, "a": a, "b": b}
    y, last = function(**named, scale=1.0, initial_state=start, output_final_state=True)
    return y.to(wide), last.to(wide)


def _by_key_widths(inputs: Arguments) -> tuple[int, ...]:
    return inputs[0].shape[3], inputs[2].shape[3]


def _by_key_sample(inputs: Arguments, length: int, draw: Generator) -> Arguments:
    """Inputs whose log-decays lie between -1 and 0, as the plain operator requires."""
    keys, values = _by_key_widths(inputs)
    q, k, a = (torch.randn(2, length, 2, keys, generator=draw) for _ in range(3))
    a = F.normalize(a, dim=-1)
    b = -a * torch.rand(2, length, 2, keys, generator=draw)
    v = torch.randn(2, length, 2, values, generator=draw)
    decay = -0.6 * torch.rand(2, length, 2, keys, generator=draw)
    state = None if inputs[6] is None else torch.randn(2, 2, keys, values, generator=draw)
    return q * keys**-0.5, k, v, a, b, decay, state


# Mamba's selective scan: x, dt, a, b, c, state


def _selective(
    function: Any, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: None
) -> tuple[Tensor, Tensor]:
    """Puts channels before steps, as the kernel has them, with the parameters in float32."""
    wide = torch.promote_types(x.dtype, torch.float32)
    u, step, into, out = (part.transpose(1, 2).contiguous() for part in _alike(x, dt, b, c))
    y, last = function(u, step, a.float(), into, out, return_last_state=True)
    y = y.transpose(1, 2).to(wide)
    return y, _NoGradient.apply(last.to(wide), y)  # pyright: ignore[reportReturnType]


class _NoGradient(torch.autograd.Function):
    """The kernel drops the gradient of its last state; asking for it is an error here, rather than zero."""

    @staticmethod
    def forward(ctx: Any, last: Tensor, source: Tensor) -> Tensor:
        return last.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise RuntimeError("This kernel has no gradient of its last state: set LEVELFIELD_KERNELS=plain.")


def _selective_widths(inputs: Arguments) -> tuple[int, ...]:
    return (inputs[2].shape[1],)


def _selective_sample(inputs: Arguments, length: int, draw: Generator) -> Arguments:
    (states,) = _selective_widths(inputs)
    x = torch.randn(2, length, 8, generator=draw)
    dt = torch.empty(2, length, 8).uniform_(-7, 1, generator=draw).exp()
    a = -torch.empty(8, states).uniform_(-1, 3, generator=draw).exp()
    b, c = (torch.randn(2, length, states, generator=draw) for _ in range(2))
    return x, dt, a, b, c, None


# The short convolution with SiLU: x, weight, bias, tail


def _conv_channels_first(
    function: Any, x: Tensor, weight: Tensor, bias: Tensor | None, tail: None
) -> tuple[Tensor, Tensor]:
    y = function(x.transpose(1, 2), *_taps(x, weight, bias), activation="silu")
    return y.transpose(1, 2), _tail(x, weight.shape[2])


def _conv_channels_last(
    function: Any, x: Tensor, weight: Tensor, bias: Tensor | None, tail: None
) -> tuple[Tensor, Tensor]:
    y, _ = function(x.contiguous(), *_taps(x, weight, bias), activation="silu")
    return y, _tail(x, weight.shape[2])


def _taps(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return weight[:, 0].to(x.dtype).contiguous(), None if bias is None else bias.to(x.dtype)


MOST_TAPS = 16  # the fewest steps that a kernel is given, from which the tail is taken


def _tail(x: Tensor, taps: int) -> Tensor:
    """The last W - 1 steps of x, which has at least as many: (B, W - 1, C)."""
    return x[:, x.shape[1] - taps + 1 :]


def _conv_widths(inputs: Arguments) -> tuple[int, ...]:
    return inputs[1].shape[2], inputs[0].shape[2] % 8


def _conv_sample(inputs: Arguments, length: int, draw: Generator) -> Arguments:
    taps, rest = _conv_widths(inputs)
    channels = 16 + rest
    x, weight = torch.randn(2, length, channels, generator=draw), torch.randn(channels, 1, taps, generator=draw)
    bias = None if inputs[2] is None else torch.randn(channels, generator=draw)
    return x, weight, bias, None


# Softmax attention in a window: q, k, v, mask, causal, window, first


def _flex(function: Any, q: Tensor, k: Tensor, v: Tensor, mask: None, causal: bool, window: int, first: int) -> Tensor:
    """Attention in a window by flex attention, compiled on a GPU: otherwise the kernel would hold all scores.

    The blocks that are visible are computed once for each size.
    """
    seen = _window_blocks(q.shape[2], k.shape[2], causal, window=window, first=first, device=q.device)
    run = _compiled(function) if q.device.type == "cuda" else function
    q, k, v = _alike(q, k, v)
    return run(q, k, v, block_mask=seen, enable_gqa=q.shape[1] != k.shape[1])


@lru_cache
def _compiled(function: Any) -> Any:
    """The compiled function, which raises where sizes vary so much that torch would run it uncompiled."""
    return torch.compile(function, fullgraph=True)


@lru_cache(maxsize=64)
def _window_blocks(queries: int, keys: int, causal: bool, window: int, first: int, device: torch.device) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    def near(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        ahead = key - query - (keys - queries)
        seen = ((ahead > -window) & (ahead < window)) | (key < first)
        return seen & (ahead <= 0) if causal else seen

    return create_block_mask(near, None, None, queries, keys, device=str(device))


def _window_widths(inputs: Arguments) -> tuple[int, ...]:
    q, k = inputs[:2]
    return q.shape[3], q.shape[1] // k.shape[1], min(k.shape[2] - q.shape[2], 37)


def _window_sample(inputs: Arguments, length: int, draw: Generator) -> Arguments:
    """Inputs with as many keys as queries, or a few more, and with a window shorter than the sequence."""
    q, k, v, _, causal, window, first = inputs
    _, shared, past = _window_widths(inputs)
    asked = torch.randn(2, 2 * shared, length, q.shape[3], generator=draw)
    keys, values = (torch.randn(2, 2, length + past, x.shape[3], generator=draw) for x in (k, v))
    return asked, keys, values, None, causal, min(window, length // 3), min(first, 5)


DECAYED = ("q", "k", "v", "log_decay", "state", "bonus")
DELTA_BY_KEY = ("q", "k", "v", "a", "b", "log_decay", "state")
RESULTS = ("y", "state")
FLA = "flash-linear-attention"


def _decayed(kernel: Kernel) -> Operator:
    return Operator((kernel,), DECAYED, RESULTS, steps=2, widths=_decayed_widths, sample=_decayed_sample)


_SIMPLE_GLA = Kernel(FLA, "fla.ops.simple_gla", "chunk_simple_gla", _simple_gla)
_GLA = Kernel(FLA, "fla.ops.gla", "chunk_gla", _gla)
_RWKV6 = Kernel(FLA, "fla.ops.rwkv6", "chunk_rwkv6", _rwkv6)
_RWKV7 = Kernel(FLA, "fla.ops.rwkv7", "chunk_rwkv7", _rwkv7)
_DELTA = Kernel(FLA, "fla.ops.delta_rule", "chunk_delta_rule", _delta, takes=_plain_delta, limits="decays or float32")
_GATED_DELTA = Kernel(FLA, "fla.ops.gated_delta_rule", "chunk_gated_delta_rule", _gated_delta)
_SELECTIVE_SCAN = Kernel(
    "mamba-ssm",
    "mamba_ssm.ops.selective_scan_interface",
    "selective_scan_fn",
    _selective,
    takes=lambda x: x[5] is None,
    limits="a state to start from",
)
_CAUSAL_CONV1D = Kernel(
    "causal-conv1d",
    "causal_conv1d",
    "causal_conv1d_fn",
    _conv_channels_first,
    takes=lambda x: x[3] is None and 2 <= x[1].shape[2] <= 4,
    limits="inputs to start from, or other than 2 to 4 taps",
)
_FLA_CONV1D = Kernel(
    FLA,
    "fla.modules.causal_conv1d",
    "causal_conv1d",
    _conv_channels_last,
    takes=lambda x: x[3] is None and 2 <= x[1].shape[2] <= MOST_TAPS,
    limits=f"inputs to start from, or other than 2 to {MOST_TAPS} taps",
)
_FLEX = Kernel(
    "torch",
    "torch.nn.attention.flex_attention",
    "flex_attention",
    _flex,
    takes=lambda x: x[3] is None,
    limits="padding",
)

OPERATORS: dict[str, Operator] = {
    "decay_by_head": _decayed(_SIMPLE_GLA),
    "decay_by_key": _decayed(_GLA),
    "decay_by_key_with_bonus": _decayed(_RWKV6),
    "delta_rule": Operator(
        (_DELTA, _GATED_DELTA),
        arguments=("q", "k", "v", "beta", "log_decay", "state"),
        results=RESULTS,
        steps=2,
        widths=_delta_widths,
        sample=_delta_sample,
    ),
    "delta_by_key": Operator((_RWKV7,), DELTA_BY_KEY, RESULTS, steps=1, widths=_by_key_widths, sample=_by_key_sample),
    "selective_scan": Operator(
        (_SELECTIVE_SCAN,),
        arguments=("x", "dt", "a", "b", "c", "state"),
        results=RESULTS,
        steps=1,
        widths=_selective_widths,
        sample=_selective_sample,
        flat=("state",),
    ),
    "short_conv": Operator(
        (_CAUSAL_CONV1D, _FLA_CONV1D),
        arguments=("x", "weight", "bias", "tail"),
        results=("y", "tail"),
        steps=1,
        widths=_conv_widths,
        sample=_conv_sample,
    ),
    "attend_window": Operator(
        (_FLEX,),
        arguments=("q", "k", "v", "mask", "causal", "window", "first"),
        results=("y",),
        steps=2,
        widths=_window_widths,
        sample=_window_sample,
    ),
}
