"""Makes a mixer of a user's own `nn.Module`, from a file, a package or a notebook, with nothing to register.

    load_user_mixer("mine.py:Mine")                    # class Mine(nn.Module): forward(x) or forward(x, mask)
    load_user_mixer("mine.py:Mine(state=16)")          # with settings for its constructor; lists reach it as tuples
    load_user_mixer("torch.nn:GRU")                    # of a module that Python can import
    user_mixer(Mine, {"state": 16})                    # a class that exists already

The class maps (B, T, D) to (B, T, D). Its constructor gets the width (by one of the names in `layer.WIDTHS`, or as its
first required parameter) and, where it has one, `causal`. A class attribute or setting `max_length` says that it takes
no longer sequences, and `receptive_field` that an output depends on so many steps. The hash of the source is a field,
so another source is another run: of a file, with all that it imports and that is not installed; of a class, with what
it refers to; of an installed module, its name and version.
"""

from __future__ import annotations

import hashlib
import inspect
import random
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from functools import partial
from numbers import Integral
from types import FunctionType, ModuleType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Generator, nn

from levelfield.spec import MixerConfig, UserError, closest, digest, torch_settings
from levelfield.spec.class_identity import identity
from levelfield.spec.errors import format_error, shortened
from levelfield.spec.memory import fitting
from levelfield.spec.reseeding import SetsSeed
from levelfield.spec.user_source import frozen, parsed
from levelfield.user import named
from levelfield.user.layer import UserLayer, constructor_arguments, mask_argument, no_number, undeclared

Maker = Callable[..., Any]  # a class, or a function that returns a module
OF_WIDTH = re.compile(r"width|dim|divi|multiple", re.IGNORECASE)  # in what a constructor says of a size that it refuses
MOST_LISTED = 20  # classes that a file may well have imported one by one
_MAKERS: dict[tuple[str, str], Maker] = {}  # (source hash, name) -> what makes the module


@dataclass(frozen=True)
class UserMixer(MixerConfig):
    """A user's module, as `load_user_mixer` or `user_mixer` makes it. `path` is empty for a class without a file."""

    path: str = field(metadata={"identity": False})  # however it was typed, `source_sha256` says what was in it
    name: str
    source_sha256: str
    takes_mask: bool  # nobody asks it any more, but ids of runs contain it
    settings: tuple[tuple[str, Any], ...] = ()

    paper: ClassVar[str] = ""
    opaque: ClassVar[bool] = True

    @property
    def label(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # one per user class, not one for all
        return self.name.lower()

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        """Constructs the module; warns of one that sets torch's seed. Raises UserError where the class is gone, has
        changed, or cannot be constructed."""
        make = self._maker()
        arguments = constructor_arguments(make, width, causal, dict(self.settings))
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        seed = int(torch.randint(2**32, (), generator=generator))
        try:
            with fitting(f"{self.name}({shown})"), _apart(seed), named.importable(self.path):
                made = make(**arguments)
                reseeded = torch.initial_seed() != seed
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            hint = _hint(make, dict(self.settings), error)
            raise UserError(f"{self.name}({shown}) fails: {format_error(error)}{hint}") from error
        if not isinstance(made, nn.Module):
            raise UserError(f"{self.name} makes a {type(made).__name__}: return an nn.Module of (B, T, D).")
        if type(made).__hash__ is None:
            raise UserError(f"{self.name} has no hash, which torch needs of modules: write @dataclass(eq=False).")
        if isinstance(made, torch.jit.ScriptModule):
            raise UserError(
                f"{self.name} makes a module of TorchScript, whose forward cannot be read: return the module itself, "
                "without torch.jit.script or torch.jit.trace."
            )
        if reseeded:
            warnings.warn(SetsSeed(self.label), stacklevel=2)
        unsized = all(value != width for key, value in arguments.items() if key not in dict(self.settings))
        return UserLayer(made, self.name, self.max_length, unsized=unsized)

    @property
    def takes_causal(self) -> bool:
        """Whether the class or function is told by an argument which steps to see; else it sees what it sees."""
        known = [constructor_arguments(self._maker(), 2, causal, dict(self.settings)) for causal in (False, True)]
        return known[0] != known[1]

    @property
    def max_length(self) -> int | None:
        """The longest sequence that the module takes: its setting or its class attribute of that name."""
        return self._declared("max_length")

    @property
    def receptive_field(self) -> int | None:
        """The steps that an output depends on, declared in the same way; None where it is all."""
        return self._declared("receptive_field")

    @property
    def equivariant(self) -> bool:
        """Whether the module does the same at every step, unless its class says `equivariant = False`."""
        return getattr(self._maker(), "equivariant", True) is not False

    def _declared(self, name: str) -> int | None:
        return _steps(dict(self.settings).get(name, getattr(self._maker(), name, None)), f"{name} of {self.name}")

    def state_size(self, width: int, length: int) -> None:
        """Unknown: nobody declared it."""

    def _maker(self) -> Maker:
        if found := _MAKERS.get((self.source_sha256, self.name)):
            return found
        if not self.path:
            raise UserError(f"{self.name} was defined in another process: define it here and pass it to user_mixer().")
        again = load_user_mixer(f"{self.path}:{self.name}")
        if not isinstance(again, UserMixer) or again.source_sha256 != self.source_sha256:
            raise UserError(f"{self.path} has changed since this run was planned: load the mixer from it again.")
        return _MAKERS[self.source_sha256, self.name]


@named.alone()
def load_user_mixer(where: str) -> MixerConfig:
    """Loads the mixer of "file.py:Name" or "package.module:Name(setting=value, ...)" with literal values.

    Name is an `nn.Module` class, a function that returns a module, or a `MixerConfig`, which is known by its settings
    and its code; one that is installed, by its `version` as those that ship are. A file is executed, as
    `python file.py` would execute it. Raises UserError where the place or name is missing, the import fails, or the
    class is no `nn.Module` of (x) or (x, mask).
    """
    place, call = named.split(where)
    name, settings = parsed(call)
    found = named.source(place)
    key = (found.sha256, name)
    if key not in _MAKERS:
        try:
            with _apart(0):
                module = named.load(place, found)
        except (Exception, SystemExit) as error:
            raise UserError(f"{place} fails when imported: {format_error(error)}{named.advice(error)}") from error
        given = _find(module, name, place)
        if _is_config(given):
            return _configured(given, name, settings)
        _MAKERS[key] = given
    return _mixer(_MAKERS[key], name, place, found.sha256, settings)


def mixer_of(given: Any, settings: Mapping[str, Any] | None = None) -> MixerConfig:
    """Returns a `MixerConfig` as it is, that of its class with the settings, and `user_mixer` of anything else; the
    arguments of a `functools.partial` are settings, too."""
    given, settings = _without_partial(given, settings or {})
    if _is_config(given):
        return _configured(given, getattr(given, "__name__", type(given).__name__), settings)
    return user_mixer(given, settings)


def _without_partial(given: Any, settings: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Returns what a `functools.partial` calls, and its arguments with the settings; anything else as it is."""
    if not isinstance(given, partial):
        return given, settings
    if given.args:
        raise UserError(f"{_shown(given)} has arguments by position: give them by name, as in partial(Mine, state=16).")
    return given.func, {**given.keywords, **settings}


def user_mixer(given: Any, settings: Mapping[str, Any] | None = None) -> UserMixer:
    """Makes a mixer of a class or a function that returns a module, such as one in a notebook cell, whose source is
    hashed (`class_identity.identity`). Raises UserError for anything else."""
    given, settings = _without_partial(given, settings or {})
    if isinstance(given, nn.Module):
        name = type(given).__name__
        raise UserError(f"This {name} is a module that is built already: pass its class, or a function of width.")
    if not (isinstance(given, FunctionType) or (isinstance(given, type) and issubclass(given, nn.Module))):
        name = getattr(given, "__name__", _shown(given))
        raise UserError(f"{name} is not a subclass of torch.nn.Module: {_other(given)}.")
    sha, name = _sha256(given), given.__name__.strip("<>")  # of a lambda
    _MAKERS[sha, name] = given
    return _mixer(given, name, "", sha, settings)


def _sha256(make: Maker) -> str:
    return hashlib.sha256(identity(make)).hexdigest()


def changed_since(mixer: MixerConfig) -> bool:
    """Tells whether a class or function that was passed from Python refers to something else by now, such as a
    dictionary that it fills when it is called: passed again, it would be another mixer."""
    if not isinstance(mixer, UserMixer) or mixer.path:
        return False
    return _sha256(mixer._maker()) != mixer.source_sha256


def _other(given: Any) -> str:
    """Returns what to do with what is no module: what has the method of a `MixerConfig` is to be derived from it."""
    builds = is_dataclass(given) and callable(getattr(given, "build", None))
    return "derive it from levelfield.MixerConfig" if builds else "pass such a class, or a function of width"


def _shown(given: object) -> str:
    return shortened(" ".join(repr(given).split()), 60)


def _mixer(make: Maker, name: str, path: str, sha: str, settings: Mapping[str, Any]) -> UserMixer:
    """Returns the mixer that is found again by this name, which the class or function itself may share with others."""
    constructor_arguments(make, 2, False, settings)  # an early complaint about settings
    kept = {key: frozen(value) for key, value in settings.items()}
    try:
        digest(list(kept.values()))
        hash(tuple(kept.values()))
    except (TypeError, ValueError) as error:
        raise UserError(f"The settings of {name} must be numbers, text, None or tuples of them.") from error
    takes_mask = isinstance(make, type) and mask_argument(make.forward, name) is not None
    mixer = UserMixer(path, name, sha, takes_mask, tuple(sorted(kept.items())))
    for bound in ("max_length", "receptive_field"):
        mixer._declared(bound)  # another early complaint
    return mixer


def _steps(declared: object, what: str) -> int | None:
    """Returns a declared number of steps, None where a class has none, or a property that only its objects know."""
    if declared is None or inspect.isroutine(declared) or inspect.isdatadescriptor(declared):
        return None
    if isinstance(declared, bool) or not isinstance(declared, Integral) or declared < 1:
        raise UserError(
            f"{what} is {_shown(declared)}: it must be a whole number of steps from 1 on, or None where there is none."
        )
    return int(declared)


def _hint(make: Maker, settings: Mapping[str, Any], error: BaseException) -> str:
    """Returns what may mend a constructor that fails, "" where nothing is known."""
    if lacked := undeclared(make, error):
        return (
            f": it is called with the parameters that it declares by name; where {lacked} is one, declare it too, "
            "before the ** or *."
        )
    if given := no_number(make, settings, error):
        return (
            f": {given}, its first required parameter, is given the width; where more is meant, such as a "
            "configuration, name a function of the width that makes it and returns the module."
        )
    unsaid = isinstance(error, AssertionError) and not str(error)  # most often of a size, such as width % heads == 0
    refuses = unsaid or (not isinstance(error, KeyError) and OF_WIDTH.search(str(error)))
    return ": give another width (--width)." if refuses else ""


def _is_config(given: object) -> bool:
    return isinstance(given, MixerConfig) or (isinstance(given, type) and issubclass(given, MixerConfig))


def _configured(given: Any, name: str, settings: Mapping[str, Any]) -> MixerConfig:
    """Returns a user's own MixerConfig with these settings."""
    if isinstance(given, MixerConfig):
        if settings:
            raise UserError(f"{name} is made already: name its class, {type(given).__name__}, to give it settings.")
        return given
    try:
        return given(**{key: frozen(value) for key, value in settings.items()})
    except TypeError as error:
        raise UserError(f"{name} does not take these settings: {format_error(error)}") from error


def offered(module: ModuleType) -> list[str]:
    """Returns the names in a module that could be mixers: its own classes and functions, or classes that it imports."""
    classes = _classes(module)
    functions = {k: v for k, v in vars(module).items() if isinstance(v, FunctionType) and v.__code__.co_argcount}
    own = [k for k, v in {**classes, **functions}.items() if v.__module__ == module.__name__ and not k.startswith("_")]
    return own or list(classes)


def _classes(module: ModuleType) -> dict[str, type]:
    """Returns the classes of modules and mixers in a module by name, also those that it imports."""
    kinds = (nn.Module, MixerConfig)
    return {k: v for k, v in vars(module).items() if isinstance(v, type) and issubclass(v, kinds)}


def _find(module: ModuleType, name: str, place: str) -> Any:
    """Returns the class, function or MixerConfig of that name. Raises UserError where it is none of these."""
    given = vars(module).get(name)
    given = getattr(module, name, None) if given is None else given  # a package may load its names on first use
    if _is_config(given) or isinstance(given, FunctionType):
        return given
    if isinstance(given, type) and issubclass(given, nn.Module):
        return given
    if isinstance(given, nn.Module):
        raise UserError(f"{name} in {place} is a module that is built already: give its class, or a function of width.")
    if isinstance(given, partial):
        raise UserError(f"{name} in {place} is a partial: name its class with these settings, {place}:Mine(state=16).")
    if given is not None:
        raise UserError(f"{name} in {place} is not a subclass of torch.nn.Module: {_other(given)}.")
    if not (known := offered(module)):
        raise UserError(f"{place} defines no nn.Module class, so there is no {name} in it.")
    every = [*dict.fromkeys([*_classes(module), *known])]
    near = closest(name, every)
    if not near.startswith("did you mean") and len(every) <= MOST_LISTED:
        near = closest(name, known)  # and nothing of what a small file imports
    raise UserError(f"{place} defines no class or function {name}: {near}")


@contextmanager
def _apart(seed: int) -> Iterator[None]:
    """Seeds what a user's code draws from (torch, NumPy, random); puts that and torch's settings back for others."""
    kept, numpy_kept = random.getstate(), np.random.get_state()  # noqa: NPY002  # the user's code may draw from it
    with torch.random.fork_rng(devices=[]), torch_settings.kept():
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(kept)
            np.random.set_state(numpy_kept)  # noqa: NPY002
