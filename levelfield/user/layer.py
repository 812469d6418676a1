"""Puts a user's module behind the signature of mixers: what its constructor is given, and what its forward gets.

    arguments = constructor_arguments(nn.GRU, width=64, causal=True, settings={})    # input_size, hidden_size, ...
    layer = UserLayer(nn.GRU(**arguments), "GRU")
    y = layer(x, mask)                                  # (B, T, D), though a GRU returns (outputs, state)

Torch's own layers are taken as they are: batch-second ones are given (T, B, D), and bidirectional recurrences are given
packed sequences, so that they begin at the last real step.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_overloads

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from levelfield.spec import UserError, closest

MASKS = {"mask": True, "key_padding_mask": False, "src_key_padding_mask": False}  # argument: what it is at real steps
WIDTHS = ("width", "d_model", "dim", "hidden_size", "embed_dim")
SIZES = {*WIDTHS, "input_size", "in_features", "out_features", "input_dim", "output_dim", "in_dim", "out_dim"}
"""Names of parameters that get the width where they are required, all of them."""
AS_NUMBER = re.compile(r"'int' object (has no attribute|is not (subscriptable|iterable|a mapping|callable))")
UNSIZED = (
    "No parameter of its constructor is given the width: call the one that is meant `width`, or leave out its default."
)
DECLARED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
"""Kinds of parameters that are passed: those that can be given by a name of their own."""


class UserLayer(nn.Module):
    """The user's module behind the contract's signature. A module without a mask gets zeros at padded steps."""

    def __init__(self, inner: nn.Module, name: str, bound: int | None = None, unsized: bool = False) -> None:
        """Wraps `inner`. name: in messages. bound: steps that it takes at most. unsized: whether it was made without
        being given the width."""
        super().__init__()
        self.advice = UNSIZED if unsized else ""  # for a call that fails on sizes
        self.inner, self.name, self.bound = inner, name, bound
        self.argument = mask_argument(type(inner).forward, name)
        of_torch = type(inner).__module__.startswith("torch.nn")  # others may mean other things by these attributes
        self.steps_first = of_torch and getattr(inner, "batch_first", True) is False
        self.packed = of_torch and isinstance(inner, nn.RNNBase) and inner.bidirectional

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Maps x (B, T, D), with mask (B, T) bool, True at real steps, or None, to what the module returns, (B, T, D).

        Raises UserError for more steps than the module says that it takes.
        """
        if self.bound is not None and x.shape[1] > self.bound:
            raise UserError(f"{self.name} takes at most {self.bound} steps, not {x.shape[1]}: choose a shorter task.")
        if self.argument is not None:
            if mask is not None and not MASKS[self.argument]:
                mask = ~mask & mask.any(-1, keepdim=True)  # torch's attention gives NaN where all is padding
            return self._outputs(x, {self.argument: mask})
        if mask is None:
            return self._outputs(x, {})
        real = mask.unsqueeze(-1)
        x = x.masked_fill(~real, 0)
        y = self._packed_outputs(x, mask) if self.packed else self._outputs(x, {})
        return y.masked_fill(~real, 0) if isinstance(y, Tensor) and y.shape == x.shape else y

    def _outputs(self, x: Tensor, masks: Mapping[str, Tensor | None]) -> Tensor:
        """Returns the outputs for x (B, T, D): of a module that returns several things, the first one.

        What is no tensor is returned as it is, for the contract to name.
        """
        made = self.inner(x.transpose(0, 1) if self.steps_first else x, **masks)
        y: Any = made[0] if isinstance(made, tuple) and made and isinstance(made[0], Tensor) else made
        return y.transpose(0, 1) if self.steps_first and isinstance(y, Tensor) else y

    def _packed_outputs(self, x: Tensor, mask: Tensor) -> Tensor:
        """Returns outputs (B, T, D) of a recurrence that reads each sequence from its last real step, too."""
        first = not self.steps_first
        lengths = mask.sum(1).clamp(min=1).cpu()  # a sequence of padding alone is read as one step of zeros
        given = pack_padded_sequence(x if first else x.transpose(0, 1), lengths, first, enforce_sorted=False)
        y, _ = pad_packed_sequence(self.inner(given)[0], first, total_length=x.shape[1])
        return y if first else y.transpose(0, 1)


def constructor_arguments(
    make: Callable[..., Any], width: int, causal: bool, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns keyword arguments for a class or function. Raises UserError that names what is missing or unknown."""
    name = getattr(make, "__name__", "it")
    parameters = _parameters(make)
    named = {k: p for k, p in parameters.items() if p.kind in DECLARED}
    takes_any = any(p.kind == p.VAR_KEYWORD for p in parameters.values())
    _check_settings(name, settings if not takes_any else settings.keys() & named.keys(), named)
    required = [k for k, p in named.items() if p.default is p.empty and k not in settings]
    arguments = dict(settings)
    if wide := _named_width(named) or next((k for k in required[:1] if k != "causal"), None):
        arguments[wide] = width
    arguments |= {k: width for k in required if k in SIZES}
    if "causal" in named and "causal" not in settings:
        arguments["causal"] = causal
    if "batch_first" in named and "batch_first" not in settings:
        arguments["batch_first"] = True
    if missing := [k for k in required if k not in arguments]:
        example = f"{name}({', '.join(f'{k}=...' for k in missing)})"
        raise UserError(
            f"{name} needs {' and '.join(missing)} besides its width: give a default, or write {example} after the "
            "colon."
        )
    return _both_ways(arguments, settings, width)


def undeclared(make: Callable[..., Any], error: BaseException) -> str:
    """Returns the parameter that a class or function of **kw or *args may have missed where it has failed with `error`;
    "" for one that declares all its parameters. The key of a KeyError is that parameter, or what gets the width."""
    parameters = _parameters(make)
    declared = {k for k, p in parameters.items() if p.kind in DECLARED}
    if len(declared) == len(parameters):
        return ""
    key = str(error.args[0]) if isinstance(error, KeyError) and error.args else ""
    if key.isidentifier() and key not in declared:
        return key
    return "" if declared else WIDTHS[0]


def no_number(make: Callable[..., Any], settings: Collection[str], error: BaseException) -> str:
    """Returns the parameter that has the width by its place alone, where a class or function has failed with `error` as
    that is a number; "" otherwise."""
    named = {k: p for k, p in _parameters(make).items() if p.kind in DECLARED}
    required = [k for k, p in named.items() if p.default is p.empty and k not in settings]
    first = "" if _named_width(named) else next(iter(required), "")
    return first if first not in ("causal", *SIZES) and AS_NUMBER.search(str(error)) else ""


def _named_width(named: Collection[str]) -> str | None:
    """Returns the parameter that is the width by its name, where there is one."""
    return next((each for each in WIDTHS if each in named), None)


def _check_settings(name: str, settings: Collection[str], named: Mapping[str, inspect.Parameter]) -> None:
    """Raises UserError for a setting that is not there, or is the width. No argument that is passed anyway is offered,
    though a direction and the order of batch and steps may be set."""
    wide = _named_width(named)
    if wide in settings:
        raise UserError(f"The {wide} of {name} comes from --width: leave it out of the settings, and give that.")
    required = [key for key, p in named.items() if p.default is p.empty]
    passed = {wide, "causal", "batch_first", *(required if wide is None else ())[:1], *SIZES.intersection(required)}
    free = [key for key in named if key not in passed]
    if unknown := next((key for key in settings if key not in named), None):
        choice = closest(unknown, free) if free else "it has none, so leave them out."
        raise UserError(f"{name} has no setting '{unknown}': {choice}")


def _both_ways(arguments: dict[str, Any], settings: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Halves the state of a recurrence of two directions, whose outputs stand side by side."""
    if settings.get("bidirectional") and "hidden_size" in arguments and "hidden_size" not in settings:
        if width % 2:
            raise UserError(f"Two directions need an even width, not {width}: give --width an even number.")
        arguments["hidden_size"] = width // 2
    return arguments


def _parameters(make: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Returns the parameters of a class or function; where it declares overloads, as torch.nn.GRU does, the first's,
    and where its `__new__` declares none by name, as of data classes that are modules, those of `__init__`."""
    overloads = get_overloads(make.__init__) if isinstance(make, type) else []
    parameters = inspect.signature(make).parameters if not overloads else {}
    if not isinstance(make, type) or any(p.kind in DECLARED for p in parameters.values()):
        return parameters
    initial = inspect.signature(overloads[0] if overloads else make.__init__).parameters
    return {k: p for k, p in initial.items() if k != "self"}


def mask_argument(forward: Callable[..., Any], name: str) -> str | None:
    """Returns the name by which a module's `forward` takes a mask. Raises UserError where it needs other arguments."""
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if extra := [each for each in required[1:] if each not in MASKS]:
        needed = " and ".join(extra)
        raise UserError(
            f"{name}.forward needs {needed}, and a mixer's forward takes (x) or (x, mask): give {needed} a default, or "
            f"write a module of x alone that calls {name}."
        )
    return next((p.name for p in parameters if p.name in MASKS), None)
