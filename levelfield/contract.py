"""The contract every mixer keeps, checked before any training: ours in the tests, a user's own before it is compared.

    check(load_user_mixer("mine.py:Mine"), width=64, causal=True)
    # UserError: mine is built as causal, but its output at step 3 depends on inputs after step 3: ...

A comparison is worthless when one arm reads the future, the padding or its neighbours in the batch, and such faults
look like skill. Each check therefore changes what must not matter and looks for a change in what came out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from copy import deepcopy

import torch
from torch import Generator, Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from levelfield.spec import MixerConfig, UserError
from levelfield.spec.errors import format_error

TOLERANCE = 1e-4  # of the largest output: float32 transforms over the sequence leave rounding of up to 1e-5
STIR = 0.05


def check(
    config: MixerConfig,
    width: int,
    causal: bool,
    length: int = 33,
    padding: bool = True,
    device: str = "cpu",
    longest: int | None = None,
) -> None:
    """Raise UserError, in one sentence, on the first rule that the layer of `config` breaks.

    Shapes, finite outputs and gradients, repeatability in eval mode, no memory between calls, length 1, independence
    of batch neighbours, no future in the causal direction, and with `padding` no influence of padded steps on real
    ones; that the weights alone, stored and loaded, make the same layer; where `longest` is given, that so many steps
    are taken, and that in the middle of them a causal layer does not see the future. Parameters that never get a
    gradient only raise a warning. Takes well under a second on a CPU, and besides it six passes at `longest`;
    `device` is for modules that run nowhere else.

    The layer is checked as initialised, and again with noise added to its parameters: a last map that starts at zero
    would hide every fault until training moves it.
    """
    try:
        _check(config, width, causal, length, padding, device, longest)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's own layer raises
        raise UserError(f"{config.label} fails in the contract check: {format_error(error)}") from error


def _check(
    config: MixerConfig, width: int, causal: bool, length: int, padding: bool, device: str, longest: int | None
) -> None:
    name = config.label
    length = min(length, config.max_length or length)
    longest = min(longest, config.max_length or longest) if longest is not None else None
    net = _build(config, width, causal, name).to(device)
    generator = Generator().manual_seed(1)

    def normal(batch: int, steps: int) -> Tensor:
        return torch.randn(batch, steps, width, generator=generator).to(device)

    _stored(net, name)
    with torch.random.fork_rng(_devices(device)):
        idle = _rules(net, name, normal(3, length), normal(3, length), causal, padding)
        _bounds(net, config, causal, normal)
        if longest is not None:
            _far(net, name, normal(1, longest), normal(1, longest), causal)
        _stir(net, generator)
        if torch.isfinite(net(normal(2, length), None)).all():
            idle &= _rules(net, name, normal(3, length), normal(3, length), causal, padding)
            if longest is not None:
                _far(net, name, normal(1, longest), normal(1, longest), causal)
        _restored(net, _build(config, width, causal, name).to(device), name, normal(3, length))
    if idle:
        warnings.warn(
            f"{name} has parameters that get no gradient: {', '.join(sorted(idle))}; remove or use them.", stacklevel=2
        )


def looks_ahead(config: MixerConfig, width: int, length: int = 33) -> bool:
    """Whether a step of the layer, built for both directions, sees any later one: of a module that ignores `causal`,
    which of the two it is. Its parameters are stirred, so that a map that starts at zero hides nothing."""
    net = _build(config, width, False, config.label)
    generator = Generator().manual_seed(1)
    _stir(net, generator)
    length = min(length, config.max_length or length)
    x, other = (torch.randn(2, length, width, generator=generator) for _ in range(2))
    half = (length + 1) // 2
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        changed = torch.cat([x[:, :half], other[:, half:]], 1)
        return _differ(_call(net, config.label, x, None)[:, :half], _call(net, config.label, changed, None)[:, :half])


def _rules(net: nn.Module, name: str, x: Tensor, other: Tensor, causal: bool, padding: bool) -> set[str]:
    """All rules in order of what explains most. Returns the names of parameters without a gradient."""
    with torch.no_grad():
        _shape(net, name, x)
        _repeatable(net, name, x, other)
        _length_one(net, name, x)
        _neighbours(net, name, x, other)
        if causal:
            _future(net, name, x, other, range(x.shape[1] - 1))
        if padding:
            _padding(net, name, x, other)
    return _gradients(net, name, x, padding)


def _devices(device: str | torch.device) -> list[int]:
    """Which generators besides the CPU's a module there can draw from."""
    return [torch.cuda.current_device()] if torch.device(device).type == "cuda" else []


def _build(config: MixerConfig, width: int, causal: bool, name: str) -> nn.Module:
    try:
        net = config.build(width, causal=causal, layer=0, generator=Generator().manual_seed(0))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{name} cannot be built at width {width}: {format_error(error)}") from error
    return net.eval()


def _stored(net: nn.Module, name: str) -> None:
    """All that a run keeps of the layer are tensors, and they are there before its first call."""
    for key, value in net.state_dict().items():
        if isinstance(value, (UninitializedParameter, UninitializedBuffer)):
            raise UserError(f"{name} does not know the size of '{key}' when it is built: take it from the width.")
        if not isinstance(value, Tensor):
            raise UserError(f"{name} keeps a {type(value).__name__} as '{key}': weights are stored as tensors alone.")


def _restored(net: nn.Module, again: nn.Module, name: str, x: Tensor) -> None:
    """Built once more, with the weights that a run stores, the layer that was trained says the same."""
    shared = {id(value) for value in net.parameters()}
    for key, value in again.named_parameters():
        if id(value) in shared:
            raise UserError(f"{name} shares '{key}' between layers and runs: make it anew in every __init__.")
    kept, own = net.state_dict(), again.state_dict()
    for key in sorted(kept.keys() ^ own.keys()):
        raise UserError(f"{name} makes or drops '{key}' after it was built: make all of it in __init__.")
    for key, value in kept.items():
        if value.shape != own[key].shape:
            raise UserError(
                f"{name} changes the shape of '{key}' after it was built: register it with persistent=False."
            )
    try:
        deepcopy(net)
    except Exception as error:
        hint = " (nn.utils.weight_norm: take nn.utils.parametrizations.weight_norm)" if "deepcopy" in str(error) else ""
        raise UserError(f"{name} cannot be copied after a call: {format_error(error)}{hint}") from error
    with torch.no_grad():
        again.load_state_dict({key: value.clone() for key, value in kept.items()})
        if _differ(_call(net, name, x, None), _call(again, name, x, None)):
            raise UserError(
                f"{name} does not give the same output after its weights are stored and loaded: keep what changes in "
                "training in parameters or persistent buffers, and draw with torch's global generator in __init__."
            )


def _shape(net: nn.Module, name: str, x: Tensor) -> None:
    if not torch.isfinite(_call(net, name, x, None)).all():
        raise UserError(
            f"{name} returns NaN or infinite numbers for a standard normal input: check its initial values."
        )


def _call(net: nn.Module, name: str, x: Tensor, mask: Tensor | None) -> Tensor:
    """One forward pass whose output has the input's shape and a floating-point type."""
    try:
        y = net(x, mask)
    except UserError:
        raise
    except Exception as error:
        where = "no mask" if mask is None else "a padding mask"
        raise UserError(
            f"{name} fails on an input of shape {tuple(x.shape)} with {where}: {format_error(error).rstrip('.')}. If "
            f"it is "
            "made for one length, let it take shorter ones too, and declare the longest as `max_length` in its class."
        ) from error
    if not isinstance(y, Tensor):
        part = ", such as y[0]" if isinstance(y, tuple) else ""
        part = ", such as y.last_hidden_state" if isinstance(getattr(y, "last_hidden_state", None), Tensor) else part
        raise UserError(f"{name} returns a {type(y).__name__}: a mixer returns one tensor of its input's shape{part}.")
    if y.shape != x.shape:
        shapes = f"an input of shape {tuple(x.shape)} into {tuple(y.shape)}"
        raise UserError(f"{name} turns {shapes}: a mixer keeps (batch, length, width).")
    if not y.is_floating_point() or torch.promote_types(x.dtype, y.dtype) != x.dtype:
        raise UserError(f"{name} returns {y.dtype} numbers for {x.dtype} ones: end its forward with `.to(x.dtype)`.")
    return y


def _repeatable(net: nn.Module, name: str, x: Tensor, other: Tensor) -> None:
    before = {key: value.clone() for key, value in net.state_dict().items()}
    with torch.random.fork_rng(_devices(x.device)):
        first = _call(net, name, x, None)
    with torch.random.fork_rng(_devices(x.device)):
        same_draws = _call(net, name, x, None)
    again = _call(net, name, x, None)
    other_draws = _call(net, name, x, None)
    for key, value in net.state_dict().items():
        if not torch.equal(value, before[key]):
            raise UserError(f"{name} changes its own '{key}' when called in eval mode: a mixer has no memory of calls.")
    if _differ(first, same_draws):
        raise UserError(f"{name} gives another output when called again: a mixer has no memory of calls.")
    if _differ(again, other_draws):
        raise UserError(f"{name} draws random numbers in eval mode: draw them only where self.training is True.")
    _call(net, name, other[:, : max(1, x.shape[1] // 2)], None)
    if _differ(first, _call(net, name, x, None)):
        raise UserError(f"{name} remembers the sequence it saw before: a mixer has no memory of calls.")


def _length_one(net: nn.Module, name: str, x: Tensor) -> None:
    if not torch.isfinite(_call(net, name, x[:, :1], None)).all():
        raise UserError(
            f"{name} returns NaN or infinite numbers for sequences of one step: mind statistics over steps."
        )


def _neighbours(net: nn.Module, name: str, x: Tensor, other: Tensor) -> None:
    together = _call(net, name, x, None)
    for row in (0, len(x) - 1):  # both ends, as a batch axis taken for time shows in one of them only
        changed = 3 * other
        changed[row] = x[row]
        one = slice(row, row + 1)
        if _differ(together[one], _call(net, name, changed, None)[one]) or _differ(
            together[one], _call(net, name, x[one], None)
        ):
            raise UserError(
                f"{name} lets the sequences of a batch see each other: check that the axes are (batch, length, width) "
                "and that nothing is averaged over the batch."
            )


@torch.no_grad()
def _far(net: nn.Module, name: str, x: Tensor, other: Tensor, causal: bool) -> None:
    """A pass at the length to come. Layers that work in chunks see the future, if they do, beyond the first of them:
    from within a chunk, or from a chunk's last step."""
    half = x.shape[1] // 2
    steps = [step for step in (half - 1, half + 2) if 0 <= step < x.shape[1] - 1]
    _future(net, name, x, other, steps if causal else ())


def _future(net: nn.Module, name: str, x: Tensor, other: Tensor, steps: Iterable[int]) -> None:
    """What comes after each of the steps is changed."""
    expected = _call(net, name, x, None)
    for step in steps if torch.isfinite(expected).all() else ():
        changed = torch.cat([x[:, : step + 1], 3 * other[:, step + 1 :]], 1)
        wrong = _steps_apart(expected[:, : step + 1], _call(net, name, changed, None)[:, : step + 1])
        if wrong:
            raise UserError(
                f"{name} is built as causal, but its output at step {wrong[0]} depends on inputs after step {step}: "
                "honour `causal`, or compare it in the bidirectional direction."
            )


def _padding(net: nn.Module, name: str, x: Tensor, other: Tensor) -> None:
    real = max(1, 2 * x.shape[1] // 3)
    mask = _mask(x, real)
    y = _call(net, name, x, mask)
    if not torch.isfinite(y).all():
        raise UserError(
            f"{name} returns NaN or infinite numbers where a sequence is padded: mind rows of padding alone."
        )
    changed = torch.where(mask.unsqueeze(-1), x, 3 * other)
    cut = _call(net, name, x[1:2, :real], None)
    if _differ(y[mask], _call(net, name, changed, mask)[mask]):
        raise UserError(f"{name} lets what lies in padded steps reach real ones: {_ADVICE}")
    if _differ(y[1:2, :real], cut):
        raise UserError(f"{name} gives real steps another output when padding is added after them: {_ADVICE}")


_ADVICE = "take `mask`, (batch, length) with True at real steps, and hide the others."


def _bounds(net: nn.Module, config: MixerConfig, causal: bool, normal: Callable[[int, int], Tensor]) -> None:
    """What the config declares about lengths is true: nothing beyond `max_length`, nothing seen beyond the field."""
    bound, field = config.max_length, config.receptive_field
    if bound is not None:
        try:
            net(normal(1, bound + 1), None)
        except UserError:
            pass
        else:
            raise UserError(f"{config.label} declares max_length {bound} but takes {bound + 1} steps: raise UserError.")
    if field is None or causal:
        return
    x = normal(1, 2 * field + 1).requires_grad_()
    net(x, None)[0, field].square().sum().backward()
    assert x.grad is not None
    away = int((x.grad[0].abs().amax(-1).nonzero().flatten() - field).abs().max())
    if away > field // 2:
        raise UserError(f"{config.label} declares a receptive field of {field} steps but sees {away} away.")


def _mask(x: Tensor, real: int) -> Tensor:
    """(3, T) bool: row 0 is whole, row 1 has `real` real steps, row 2 is all padding."""
    return torch.arange(x.shape[1], device=x.device) < torch.tensor([x.shape[1], real, 0], device=x.device)[:, None]


def _gradients(net: nn.Module, name: str, x: Tensor, padding: bool) -> set[str]:
    """In training mode, whole and padded."""
    net.train()
    x = x.clone().requires_grad_()
    masks = [None, _mask(x, 1)] if padding else [None]
    idle = {key for key, value in net.named_parameters() if value.requires_grad}
    for mask in masks:
        net.zero_grad()
        x.grad = None
        y = _call(net, name, x, mask)
        if not y.requires_grad:
            raise UserError(f"{name} cuts the gradient: its output does not depend on its input and parameters.")
        known = {id(x), *map(id, net.parameters())}
        if shapes := [tuple(leaf.shape) for leaf in _leaves(y) if id(leaf) not in known]:
            raise UserError(
                f"{name} uses a parameter of shape {shapes[0]} that it does not register, so that nothing trains it: "
                "keep modules in an nn.ModuleList and parameters in an nn.ParameterList."
            )
        # Squares at growing weights: a plain sum is blind to whatever a normalisation holds constant.
        (y.square() * torch.linspace(0.5, 1.5, y.numel(), device=y.device).view_as(y)).sum().backward()
        grads = {key: value.grad for key, value in net.named_parameters() if value.grad is not None}
        for key, grad in [*grads.items(), ("its input", x.grad)]:
            if grad is not None and not torch.isfinite(grad).all():
                raise UserError(
                    f"{name} has a NaN or infinite gradient for {key}: guard roots, logarithms and divisions."
                )
        idle -= {key for key, grad in grads.items() if grad.abs().max() > 0}
    net.zero_grad()
    net.eval()
    return idle


def _leaves(y: Tensor) -> list[Tensor]:
    """The tensors that a backward pass through y would give gradients."""
    found, seen, left = [], set(), [y.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            found.append(leaf)
        left += [before for before, _ in node.next_functions]
    return found


def _stir(net: nn.Module, generator: Generator) -> None:
    with torch.no_grad():
        for value in net.parameters():
            if value.is_floating_point() or value.is_complex():
                value += STIR * torch.randn(value.shape, generator=generator, dtype=value.dtype).to(value.device)


def _differ(a: Tensor, b: Tensor) -> bool:
    return bool(_apart(a, b).any())


def _steps_apart(a: Tensor, b: Tensor) -> list[int]:
    """Steps at which (B, T, D) outputs differ."""
    return [int(step) for step in _apart(a, b).any(0).any(-1).nonzero().flatten()]


def _apart(a: Tensor, b: Tensor) -> Tensor:
    tolerance = TOLERANCE if a.device.type == "cpu" else 100 * TOLERANCE  # devices may round products to ten bits
    return ~((a - b).abs() <= tolerance * a.abs().max().clamp(min=1e-6))  # so that NaN counts as apart
