"""Makes a mixer of a user's own `nn.Module`, from a file or a notebook, with nothing to register.

    load_user_mixer("mine.py:Mine")                    # class Mine(nn.Module): forward(x) or forward(x, mask)
    load_user_mixer("mine.py:Mine(state=16)")          # with settings for its constructor; lists reach it as tuples
    user_mixer(Mine, {"state": 16})                    # a class that exists already

The class maps (B, T, D) to (B, T, D). Its constructor gets the width (by one of the names in WIDTHS, or as its first
required parameter) and, where it has one, `causal`. A class attribute or setting `max_length` says that it takes no
longer sequences. The hash of the source is a field, so another source is another
run: of a file, with the files of its folder that it imports; of a class, with what it refers to.
"""

from __future__ import annotations

import hashlib
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Generator, Tensor, nn

from levelfield.spec import MixerConfig, UserError, closest, digest
from levelfield.spec.errors import format_error
from levelfield.spec.user_source import beside, identity, is_installed, parsed

MASKS = {"mask": True, "key_padding_mask": False, "src_key_padding_mask": False}  # argument: what it is at real steps
WIDTHS = ("width", "d_model", "dim", "hidden_size", "embed_dim")
_CLASSES: dict[tuple[str, str], type[nn.Module]] = {}  # (source hash, name) -> class


@dataclass(frozen=True)
class UserMixer(MixerConfig):
    """A user's module, as `load_user_mixer` or `user_mixer` makes it. `path` is empty for a class without a file."""

    path: str = field(metadata={"identity": False})  # however it was typed, `source_sha256` says what was in it
    name: str
    source_sha256: str
    takes_mask: bool
    settings: tuple[tuple[str, Any], ...] = ()

    paper: ClassVar[str] = ""
    opaque: ClassVar[bool] = True

    @property
    def label(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # one per user class, not one for all
        return self.name.lower()

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        """Constructs the module. Raises UserError where the class is gone, has changed, or cannot be constructed."""
        cls = self._class()
        arguments = constructor_arguments(cls, width, causal, dict(self.settings))
        seed = int(torch.randint(2**32, (), generator=generator))
        try:
            with _apart(seed), _importable(self.path):
                return UserLayer(cls(**arguments), _mask_argument(cls), self.name, self.max_length)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
            raise UserError(f"{self.name}({shown}) fails: {format_error(error)}") from error

    @property
    def max_length(self) -> int | None:
        """The longest sequence that the module takes: its setting or its class attribute of that name."""
        found = dict(self.settings).get("max_length", getattr(self._class(), "max_length", None))
        return found if isinstance(found, int) and found > 0 else None

    def state_size(self, width: int, length: int) -> None:
        """Unknown: nobody declared it."""

    def _class(self) -> type[nn.Module]:
        if found := _CLASSES.get((self.source_sha256, self.name)):
            return found
        if not self.path:
            raise UserError(f"{self.name} was defined in another process: define it here and pass it to user_mixer().")
        again = load_user_mixer(f"{self.path}:{self.name}")
        if again.source_sha256 != self.source_sha256:
            raise UserError(f"{self.path} has changed since this run was planned: load the mixer from it again.")
        return _CLASSES[self.source_sha256, self.name]


class UserLayer(nn.Module):
    """The user's module behind the contract's signature. A module without a mask gets zeros at padded steps."""

    def __init__(self, inner: nn.Module, argument: str | None, name: str, bound: int | None = None) -> None:
        """Wraps `inner`. argument: its name for the mask, one of MASKS, or None. bound: steps that it takes at most."""
        super().__init__()
        self.inner, self.argument, self.name, self.bound = inner, argument, name, bound

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Maps x (B, T, D), with mask (B, T) bool, True at real steps, or None, to what the module returns, (B, T, D).

        Raises UserError for more steps than the module says that it takes.
        """
        if self.bound is not None and x.shape[1] > self.bound:
            raise UserError(f"{self.name} takes at most {self.bound} steps, not {x.shape[1]}: choose a shorter task.")
        if self.argument is not None:
            if mask is not None and not MASKS[self.argument]:
                mask = ~mask & mask.any(-1, keepdim=True)  # torch's attention gives NaN where all is padding
            return self.inner(x, **{self.argument: mask})
        if mask is None:
            return self.inner(x)
        real = mask.unsqueeze(-1)
        y = self.inner(x.masked_fill(~real, 0))
        return y.masked_fill(~real, 0) if isinstance(y, Tensor) and y.shape == x.shape else y


def load_user_mixer(where: str) -> UserMixer:
    """Loads the mixer of "file.py:Name" or "file.py:Name(setting=value, ...)" with literal values.

    The file is executed, as `python file.py` would execute it. Raises UserError where the file or class is missing,
    the import fails, or the class is no `nn.Module` of (x) or (x, mask).
    """
    path, colon, call = where.partition(":")
    if not colon or not call:
        raise UserError(f"'{where}' names no class: write FILE.py:Name, such as mine.py:Mine.")
    name, settings = parsed(call)
    source = _read(path)
    others = beside(path, source)
    sha = hashlib.sha256(b"\0".join([source, *others.values()])).hexdigest()
    if (sha, name) not in _CLASSES:
        _CLASSES[sha, name] = _find(_import(path, source, sha, others), name, path)
    return _mixer(_CLASSES[sha, name], path, sha, settings)


def user_mixer(cls: type[nn.Module], settings: Mapping[str, Any] | None = None) -> UserMixer:
    """Makes a mixer of a class, such as one in a notebook cell, whose source is hashed (`user_source.identity`)."""
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
        raise UserError(f"{getattr(cls, '__name__', cls)} is not a subclass of torch.nn.Module: pass the class itself.")
    sha = hashlib.sha256(identity(cls)).hexdigest()
    _CLASSES[sha, cls.__name__] = cls
    return _mixer(cls, "", sha, settings or {})


def constructor_arguments(cls: type, width: int, causal: bool, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns keyword arguments for the class. Raises UserError that names what is missing or unknown."""
    signature = inspect.signature(cls)
    named = {k: p for k, p in signature.parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind == p.VAR_KEYWORD for p in signature.parameters.values())
    for key in settings:
        if key not in named and not takes_any:
            raise UserError(f"{cls.__name__} has no setting '{key}': {closest(key, list(named))}")
    required = [k for k, p in named.items() if p.default is p.empty and k not in settings]
    arguments = dict(settings)
    if wide := next((k for k in (*WIDTHS, *required[:1]) if k in named and k not in settings and k != "causal"), None):
        arguments[wide] = width
    if "causal" in named and "causal" not in settings:
        arguments["causal"] = causal
    if missing := [k for k in required if k not in arguments]:
        example = f"{cls.__name__}({', '.join(f'{k}=...' for k in missing)})"
        raise UserError(
            f"{cls.__name__} needs {' and '.join(missing)} besides its width: give a default, or write {example} after "
            "the file's name and colon."
        )
    return arguments


def _mixer(cls: type[nn.Module], path: str, sha: str, settings: Mapping[str, Any]) -> UserMixer:
    constructor_arguments(cls, 1, False, settings)  # an early complaint about settings
    frozen = {key: _frozen(value) for key, value in settings.items()}
    try:
        digest(list(frozen.values()))
        hash(tuple(frozen.values()))
    except (TypeError, ValueError) as error:
        raise UserError(f"The settings of {cls.__name__} must be numbers, text, None or tuples of them.") from error
    return UserMixer(path, cls.__name__, sha, _mask_argument(cls) is not None, tuple(sorted(frozen.items())))


def _frozen(value: Any) -> Any:
    """Turns lists into tuples, at any depth, so that a mixer can be hashed."""
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _mask_argument(cls: type[nn.Module]) -> str | None:
    parameters = list(inspect.signature(cls.forward).parameters.values())[1:]
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if extra := [name for name in required[1:] if name not in MASKS]:
        raise UserError(
            f"{cls.__name__}.forward needs {' and '.join(extra)}: a mixer's forward takes (x) or (x, mask)."
        )
    return next((p.name for p in parameters if p.name in MASKS), None)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"Cannot read {path} ({error.strerror}): give the path of a Python file.") from error


def _import(path: str, source: bytes, sha: str, others: Mapping[Path, bytes]) -> ModuleType:
    """Executes these very bytes as a module, and imports the files beside it anew."""
    module = ModuleType(f"_user_{sha[:16]}")
    module.__file__ = path
    folder = Path(path).resolve().parent
    for file in others:
        place = file.relative_to(folder).with_suffix("")
        name = ".".join(place.parts[:-1] if place.name == "__init__" else place.parts)
        if name in sys.modules and not is_installed(sys.modules[name]):
            del sys.modules[name]
    sys.modules[module.__name__] = module
    try:
        with _apart(0), _importable(path):
            exec(compile(source, path, "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        fix = "; for a file beside it write `from helper import ...`" if "relative import" in str(error) else ""
        raise UserError(f"{path} fails when imported: {format_error(error)}{fix}") from error
    return module


@contextmanager
def _importable(path: str) -> Iterator[None]:
    """Searches the folder of a file for modules meanwhile, as for a script; does nothing where there is no file."""
    folder = [str(Path(path).resolve().parent)] if path else []
    sys.path[:0] = folder
    try:
        yield
    finally:
        for each in folder:
            sys.path.remove(each)


def _find(module: ModuleType, name: str, path: str) -> type[nn.Module]:
    classes = {k: v for k, v in vars(module).items() if isinstance(v, type)}
    modules = {k: v for k, v in classes.items() if issubclass(v, nn.Module)}
    if name in modules:
        return modules[name]
    if name in vars(module):
        raise UserError(f"{name} in {path} is not a subclass of torch.nn.Module: a mixer is an nn.Module class.")
    if not modules:
        raise UserError(f"{path} defines no nn.Module class, so there is no {name} in it.")
    own = [k for k, v in modules.items() if v.__module__ == module.__name__]
    raise UserError(f"{path} defines no class {name}: {closest(name, own or list(modules))}")


_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (  # of torch, for the whole process
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, torch.set_default_device),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
)


@contextmanager
def _apart(seed: int) -> Iterator[None]:
    """Seeds what a user's code may draw from (torch, NumPy, random); puts that and torch's settings back afterwards, as
    other arms are trained in the same process."""
    kept, numpy_kept = random.getstate(), np.random.get_state()  # noqa: NPY002  # the user's code may draw from it
    settings = [read() for read, _ in _SETTINGS]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(kept)
            np.random.set_state(numpy_kept)  # noqa: NPY002
            for (read, write), before in zip(_SETTINGS, settings, strict=True):
                if read() != before:
                    write(before)
