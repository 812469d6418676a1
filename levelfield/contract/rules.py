"""The rules of the contract of mixers: each is a function of a `Subject` that raises UserError where it is broken.

    subject = Subject(layer, "mine", x, other)      # x and other: (B, T, D), independent of each other
    blind_to_the_future(subject, range(32))

The message is one sentence that begins with the mixer's name and ends with what to do. Letters: B batch, T steps,
D width.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn

from levelfield.spec import UserError
from levelfield.spec.errors import format_error
from levelfield.spec.memory import is_shortage

TOLERANCE = 1e-4  # of the largest output: float32 transforms over the sequence leave rounding of up to 1e-5
MOST_TRAINED = 2_048  # steps of a pass of training, whose memory may grow with their square
NOISE = 0.05  # standard deviation of what `add_noise` adds to every parameter
UNTRAINED = "it stays as it is, and only the layers around it are trained."
MASK_ADVICE = (
    "take `mask`, (batch, length) with True at real steps, and hide the others; `attention_mask` is never passed, as "
    "libraries mean different things by it."
)

LENGTH_ADVICE = (
    "If it is made for one length, let it take shorter ones too, and declare the longest as `max_length` in its class; "
    "if for multiples of one, let it pad its input at the end and cut its output."
)
SIZES = re.compile(r"\b(sizes?|shapes?|lengths?|dimensions?|steps|out of (range|bounds))\b", re.IGNORECASE)


class ChangesItsInput(UserError):
    """The error for a layer whose forward writes into its input, which other layers may read."""


@dataclass(frozen=True)
class Subject:
    """A layer under examination, its name in messages, and two independent batches of inputs, (B, T, D) each."""

    layer: nn.Module
    name: str
    x: Tensor
    other: Tensor

    def __call__(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """One forward pass, whose output has the input's shape and a floating-point type no wider than the input's.

        Raises ChangesItsInput where the input is not what it was.
        """
        version, before, name = x._version, x.detach().clone(), self.name
        y = self._output(x, mask)
        if x._version != version or not torch.equal(x, before):  # `.data` and NumPy write without a new version
            raise ChangesItsInput(
                f"{name} changes its input in place, where other layers may read it: write `x = x * 2` for `x *= 2` "
                "and `x.mul_(2)`, or begin its forward with `x = x.clone()`."
            )
        if not isinstance(y, Tensor):
            holds_states = isinstance(getattr(y, "last_hidden_state", None), Tensor)
            part = ", such as y.last_hidden_state" if holds_states else ", such as y[0]" if isinstance(y, tuple) else ""
            what = f"{name} returns a {type(y).__name__}"
            raise UserError(f"{what}: a mixer returns one tensor of its input's shape{part}.")
        if y.shape != x.shape:
            shapes = f"an input of shape {tuple(x.shape)} into {tuple(y.shape)}"
            raise UserError(f"{name} turns {shapes}: a mixer keeps (batch, length, width).")
        if not y.is_floating_point() or torch.promote_types(x.dtype, y.dtype) != x.dtype:
            what = f"{name} returns {y.dtype} numbers for {x.dtype} ones"
            end = ".real" if y.is_complex() else ".to(x.dtype)"
            raise UserError(f"{what}: end its forward with `{end}`.")
        return y

    def _output(self, x: Tensor, mask: Tensor | None) -> object:
        try:
            return self.layer(x, mask)
        except UserError:
            raise
        except Exception as error:
            if is_shortage(error):
                raise  # of the length or width that was asked for, and no fault of the layer
            where = "no mask" if mask is None else "a padding mask"
            hint = f" {self._advice()}" if self._by_length(error, x, mask) else ""
            if mask is None and "NoneType" in str(error):
                hint = " A mask is None where nothing is padded."
            raise UserError(
                f"{self.name} fails on an input of shape {tuple(x.shape)} with {where}: "
                f"{format_error(error).rstrip('.')}.{hint}"
            ) from error

    def _advice(self) -> str:
        """Returns what may mend a call that fails on sizes, which a layer may know better."""
        known = getattr(self.layer, "advice", "")
        return known if isinstance(known, str) and known else LENGTH_ADVICE

    def _by_length(self, error: Exception, x: Tensor, mask: Tensor | None) -> bool:
        """Tells whether the number of steps can be why a call has failed: its message speaks of sizes, or fewer steps,
        or more than one, are taken."""
        if SIZES.search(str(error)) and not isinstance(error, TypeError):
            return True
        for steps in (x.shape[1] // 2, 1) if x.shape[1] > 1 else (2, 8):
            other = x.detach()[:, :1].expand(-1, steps, -1).clone()
            real = None if mask is None else mask[:, :1].expand(-1, steps)
            with suppress(Exception):
                self.layer(other, real)
                return True
        return False


def devices(device: str | torch.device) -> list[int]:
    """The GPU whose generator a module there can draw from, besides the CPU's."""
    return [torch.cuda.current_device()] if torch.device(device).type == "cuda" else []


def leaves_its_input(subject: Subject) -> None:
    """The input is after a call what it was before. What else is wrong with a call is for the other rules to say."""
    for mask in (None, _mask(subject.x, max(1, subject.x.shape[1] // 2))):
        try:
            subject(subject.x.clone(), mask)
        except ChangesItsInput:
            raise
        except UserError:
            pass


def finite(subject: Subject) -> None:
    """Outputs are finite for a standard normal input."""
    if not torch.isfinite(subject(subject.x)).all():
        what = "returns NaN or infinite numbers for a standard normal input"
        raise UserError(f"{subject.name} {what}: check its initial values.")


def finite_over(subject: Subject, padding: bool) -> None:
    """Outputs are finite for as many steps as a task has, padded too, and up to MOST_TRAINED so are all gradients."""
    x, steps = subject.x, subject.x.shape[1]
    where = f"returns NaN or infinite numbers at {steps:,} steps, which a task has"
    masks = [None, _mask(x, max(1, steps // 2))] if padding else [None]
    with torch.no_grad():
        finite = [bool(torch.isfinite(subject(x, mask)).all()) for mask in masks]
    if not all(finite):
        part = "" if not finite[0] else ", where a sequence is padded"
        raise UserError(f"{subject.name} {where}{part}: look for what depends on the number of steps.")
    if steps <= MOST_TRAINED:
        with torch.random.fork_rng(devices(x.device)):
            _trained_once(subject)


def _trained_once(subject: Subject) -> None:
    """A pass of training has finite outputs and gradients."""
    layer, given = subject.layer.train(), subject.x.clone().requires_grad_()
    layer.zero_grad()
    y = subject(given.clone())
    if y.requires_grad:  # which another rule asks
        y.square().mean().backward()
    grads = [y, given.grad, *(value.grad for value in layer.parameters())]
    layer.zero_grad()
    layer.eval()
    if not all(torch.isfinite(each).all() for each in grads if each is not None):
        raise UserError(
            f"{subject.name} has NaN or infinite outputs or gradients in training at {subject.x.shape[1]:,} steps, "
            "which a task has: look for what depends on the number of steps, and guard roots, logarithms and divisions."
        )


def one_step(subject: Subject) -> None:
    """Outputs of sequences of one step are finite."""
    if not torch.isfinite(subject(subject.x[:, :1])).all():
        what = "returns NaN or infinite numbers for sequences of one step"
        raise UserError(f"{subject.name} {what}: mind statistics over steps.")


def same_output_when_called_again(subject: Subject) -> None:
    """Calls in eval mode leave no trace in the layer, and draw no random numbers."""
    name, x, layer = subject.name, subject.x, subject.layer
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    with torch.random.fork_rng(devices(x.device)):
        first = subject(x)
    with torch.random.fork_rng(devices(x.device)):
        same_draws = subject(x)
    again, other_draws = subject(x), subject(x)
    for key, value in layer.state_dict().items():
        if not torch.equal(value, before[key]):
            raise UserError(f"{name} changes its own '{key}' when called in eval mode: a mixer has no memory of calls.")
    if differ(first, same_draws):
        raise UserError(f"{name} gives another output when called again: a mixer has no memory of calls.")
    if differ(again, other_draws):
        raise UserError(f"{name} draws random numbers in eval mode: draw them only where self.training is True.")
    subject(subject.other[:, : max(1, x.shape[1] // 2)])
    if differ(first, subject(x)):
        raise UserError(f"{name} remembers the sequence it saw before: a mixer has no memory of calls.")


def independent_of_batch(subject: Subject) -> None:
    """A sequence gives the same output alone, and beside any others."""
    x, together = subject.x, subject(subject.x)
    for row in (0, len(x) - 1):  # both ends, as a batch axis taken for time shows in one of them only
        changed = 3 * subject.other
        changed[row] = x[row]
        one = slice(row, row + 1)
        if differ(together[one], subject(changed)[one]) or differ(together[one], subject(x[one])):
            raise UserError(
                f"{subject.name} lets the sequences of a batch see each other: check that the axes are (batch, length, "
                "width) and that nothing is averaged over the batch."
            )


def blind_to_the_future(subject: Subject, steps: Iterable[int]) -> None:
    """Changes what comes after each of the steps; outputs up to the step must stay."""
    x, expected = subject.x, subject(subject.x)
    for step in steps if torch.isfinite(expected).all() else ():
        changed = torch.cat([x[:, : step + 1], 3 * subject.other[:, step + 1 :]], 1)
        wrong = steps_apart(expected[:, : step + 1], subject(changed)[:, : step + 1])
        if wrong:
            raise UserError(
                f"{subject.name} is built as causal, but its output at step {wrong[0]} depends on inputs after step "
                f"{step}: honour `causal`, or compare it in the bidirectional direction."
            )


def blind_to_padding(subject: Subject) -> None:
    """Real steps depend neither on what lies in padded steps nor on how many there are."""
    name, x = subject.name, subject.x
    real = max(1, 2 * x.shape[1] // 3)
    mask = _mask(x, real)
    y = subject(x, mask)
    if not torch.isfinite(y).all():
        what = "returns NaN or infinite numbers where a sequence is padded"
        raise UserError(f"{name} {what}: mind rows of padding alone.")
    changed = torch.where(mask.unsqueeze(-1), x, 3 * subject.other)
    unpadded = subject(x[1:2, :real])
    if differ(y[mask], subject(changed, mask)[mask]):
        raise UserError(f"{name} lets what lies in padded steps reach real ones: {MASK_ADVICE}")
    if differ(y[1:2, :real], unpadded):
        raise UserError(f"{name} gives real steps another output when padding is added after them: {MASK_ADVICE}")


def blind_to_long_padding(subject: Subject) -> None:
    """Changes what lies in the padded second half of a sequence as long as a task has; its real steps must stay."""
    x, steps = subject.x, subject.x.shape[1]
    real = max(1, min(steps - 1, steps // 2 + 3))  # not where a layer's chunks are likely to end
    mask = (torch.arange(steps, device=x.device) < real).expand(len(x), -1)
    y, changed = subject(x, mask), torch.cat([x[:, :real], 3 * subject.other[:, real:]], 1)
    if torch.isfinite(y).all() and differ(y[:, :real], subject(changed, mask)[:, :real]):
        where = f"{subject.name} at {steps:,} steps"
        raise UserError(f"{where} lets what lies in padded steps reach real ones: {MASK_ADVICE}")


def _mask(x: Tensor, real: int) -> Tensor:
    """(B, T) bool for up to three rows: row 0 is whole, row 1 has `real` real steps, row 2 is all padding."""
    counts = torch.tensor([x.shape[1], real, 0][: len(x)], device=x.device)
    return torch.arange(x.shape[1], device=x.device) < counts[:, None]


def finite_gradients(subject: Subject, padding: bool) -> set[str]:
    """Runs backward in training mode, whole and padded; returns the names of parameters that get no gradient."""
    layer = subject.layer.train()
    given = subject.x.clone().requires_grad_()
    idle = {key for key, value in layer.named_parameters() if value.requires_grad}
    for mask in [None, _mask(given, 1)] if padding else [None]:
        layer.zero_grad()
        given.grad = None
        y = subject(given.clone(), mask)  # as within a network, where another layer has made it
        _all_trainable(subject, given, y)
        # Squares at growing weights: a plain sum is blind to whatever a normalisation holds constant.
        (y.square() * torch.linspace(0.5, 1.5, y.numel(), device=y.device).view_as(y)).sum().backward()
        grads = {key: value.grad for key, value in layer.named_parameters() if value.grad is not None}
        for key, grad in [*grads.items(), ("its input", given.grad)]:
            if grad is not None and not torch.isfinite(grad).all():
                what = f"{subject.name} has a NaN or infinite gradient for {key}"
                raise UserError(f"{what}: guard roots, logarithms and divisions.")
        idle -= {key for key, grad in grads.items() if grad.abs().max() > 0}
    layer.zero_grad()
    layer.eval()
    return idle


def has_gradient(subject: Subject, y: Tensor) -> None:
    """Raises UserError for an output y, (B, T, D), through which nothing can be trained."""
    if not y.requires_grad:
        raise UserError(f"{subject.name} cuts the gradient: its output does not depend on its input and parameters.")


def _all_trainable(subject: Subject, x: Tensor, y: Tensor) -> None:
    """The output y of x depends on the input or on parameters, and on no parameter that is not registered."""
    has_gradient(subject, y)
    known = {id(x), *map(id, subject.layer.parameters())}
    if shapes := [tuple(leaf.shape) for leaf in _leaves(y) if id(leaf) not in known]:
        raise UserError(
            f"{subject.name} uses a parameter of shape {shapes[0]} that it does not register, so that nothing trains "
            "it: keep modules in an nn.ModuleList and parameters in an nn.ParameterList."
        )


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


def same_after_loading(subject: Subject, fresh: nn.Module) -> None:
    """A second layer of the config, `fresh`, gives the same output with the weights that a run would store."""
    name, trained = subject.name, subject.layer
    shared = {id(value) for value in trained.parameters()}
    for key, value in fresh.named_parameters():
        if id(value) in shared:
            raise UserError(f"{name} shares '{key}' between layers and runs: make it anew in every __init__.")
    same_tensors(name, shapes(fresh), shapes(trained))
    kept = trained.state_dict()
    subject(subject.x)  # with gradients: a weight worked out in the call is then no leaf, as after a training step
    try:
        deepcopy(trained)
    except Exception as error:
        if "deepcopy" in str(error):  # torch's words, which speak of weight_norm alone
            raise UserError(
                f"{name} cannot be copied after a call, as it keeps a tensor with its gradient's history: keep nothing "
                "of a call in the module, or its .detach(), and take weight_norm and spectral_norm from "
                "nn.utils.parametrizations.weight_norm and .spectral_norm."
            ) from error
        raise UserError(f"{name} cannot be copied after a call: {format_error(error)}") from error
    with torch.no_grad():
        fresh.load_state_dict({key: value.clone() for key, value in kept.items()})
        if differ(subject(subject.x), Subject(fresh, name, subject.x, subject.other)(subject.x)):
            raise UserError(
                f"{name} does not give the same output after its weights are stored and loaded: keep what changes in "
                "training in parameters or persistent buffers, and draw with torch's global generator in __init__."
            )


def shapes(layer: nn.Module) -> dict[str, torch.Size]:
    """The shapes of all tensors that are stored of a layer, by name."""
    return {key: value.shape for key, value in layer.state_dict().items() if isinstance(value, Tensor)}


def same_tensors(name: str, built: Mapping[str, torch.Size], called: Mapping[str, torch.Size]) -> None:
    """A layer has, of one name and shape each, the tensors with which it was built."""
    for key in sorted(built.keys() ^ called.keys()):
        raise UserError(
            f"{name} makes or drops '{key}' after it was built, so that nothing trains or loads it: make all weights "
            "in __init__, from the width, and register a buffer that must come later with persistent=False."
        )
    for key, shape in built.items():
        if called[key] != shape:
            raise UserError(
                f"{name} changes the shape of '{key}' after it was built, so that what is stored cannot be loaded: "
                "register a table that grows with the steps, as of positions, with persistent=False, and keep nothing "
                "else between calls."
            )


def in_both_modes(subject: Subject) -> Iterator[Subject]:
    """The subject, then a copy of it in training mode, unless it cannot be copied."""
    yield subject
    with suppress(Exception):  # which the rule on stored weights tells
        yield replace(subject, layer=deepcopy(subject.layer).train())


@torch.no_grad()
def add_noise(layer: nn.Module, generator: Generator) -> None:
    for value in layer.parameters():
        if value.is_floating_point() or value.is_complex():
            value += NOISE * torch.randn(value.shape, generator=generator, dtype=value.dtype).to(value.device)


def differ(a: Tensor, b: Tensor) -> bool:
    return bool(_apart(a, b).any())


def steps_apart(a: Tensor, b: Tensor) -> list[int]:
    """Steps at which outputs of shape (B, T, D) differ."""
    return [int(step) for step in _apart(a, b).any(0).any(-1).nonzero().flatten()]


def _apart(a: Tensor, b: Tensor) -> Tensor:
    """Elements of a and b, of one shape, that differ by more than the tolerance; NaN counts as different."""
    tolerance = TOLERANCE if a.device.type == "cpu" else 100 * TOLERANCE  # devices may round products to ten bits
    return ~((a - b).abs() <= tolerance * a.abs().max().clamp(min=1e-6))
