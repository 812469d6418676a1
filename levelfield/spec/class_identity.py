"""Tells a class by its content, so that a layer from a notebook cell is another one once any part of it has changed.

The source of a class shows neither what a global name meant nor what a closure holds, and a file may have changed since
it was imported. So a class is its byte code and constants, and what these refer to, at any depth: functions behind
decorators, `functools.partial`, instances with their state, tensors and arrays with their numbers. What is installed
counts by name. Nothing in it depends on the process: no address, no order of a set.

    identity(Mine)                 # b"..."

The state of an object is what pickle would save. Of what pickle refuses, such as an open file or a lock, the type
counts alone, because a notebook is full of such things and few of them change what a layer computes.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import sys
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

import numpy as np

from levelfield.spec.errors import UserError
from levelfield.spec.user_source import NO_PART, PACKAGE, held, is_foreign, is_installed, is_installed_file, names

MOST = 1_000_000  # objects that a class may refer to, which takes some seconds
WEAK = (weakref.ref, weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)  # caches, in practice
ANNOTATIONS = ("__annotations__", "__annotate_func__")  # of a class; the second from Python 3.14 on
INNER = ("_torchdynamo_orig_callable", "_torchdynamo_inline")  # the function that torch.compile or torch.jit wraps


def identity(cls: type | FunctionType) -> bytes:
    """Returns bytes that tell a class or a function, with all that it refers to, from any other one, and are equal in
    every process of the same version of Python.

    Raises UserError for one that refers to too many objects, or to objects nested too deeply.
    """
    walk = _Walk()
    try:
        walk.tell(cls)
    except (RecursionError, OverflowError):
        raise UserError(
            f"{cls.__name__} refers to more objects than can be told apart, or to ones nested too deeply: load them "
            f"from a file in its constructor, or put the class into a file and name it FILE.py:{cls.__name__}."
        ) from None
    return b"\0".join(walk.parts)


class _Walk:
    """A walk over what a class refers to. `parts` are the bytes of what it has met so far.

    What was met before is told by the number of that meeting, so cycles end; where a name means what the same name
    meant last, nothing is said.
    """

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.met: dict[int, tuple[int, object]] = {}  # address -> number, and the value, which keeps its address
        self.last: dict[str, object] = {}

    def add(self, name: str, value: object, *, said: bool = True) -> None:
        """Tells what a name refers to. said: whether the name itself is part of the identity."""
        if said:
            self.parts.append(name.encode())
        if self.last.get(name, self) is not value:
            self.last[name] = value
            self.tell(value)

    def tell(self, value: Any) -> None:
        """Tells a value. Raises OverflowError where there are too many."""
        if _is_plain(value):
            self.parts.append(_bytes(value))
        elif (before := self.met.get(id(value))) is not None:
            self.parts.append(b"@%d" % before[0])
        elif len(self.met) >= MOST:
            raise OverflowError
        else:
            self.met[id(value)] = (len(self.met), value)
            self._anew(value)

    def _anew(self, value: Any) -> None:
        if isinstance(value, type):
            self._class(value)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, (staticmethod, classmethod)):
            self.add("", value.__func__, said=False)
        elif isinstance(value, property):
            self.add("getter", value.fget, said=False)
            self.add("setter", value.fset, said=False)
        elif isinstance(value, ModuleType):
            self.parts.append(value.__name__.encode())
        elif type(value) in (list, tuple, dict, OrderedDict, set, frozenset, MappingProxyType):
            self._container(value)
        else:
            self._object(value)

    def _class(self, cls: type) -> None:
        if is_foreign(cls):
            self.parts.append(f"{cls.__module__}.{cls.__qualname__}".encode())
            return
        self.parts.append(cls.__qualname__.encode())
        for name, member in sorted((k, v) for k, v in vars(cls).items() if k not in NO_PART):
            if name in ANNOTATIONS:  # what they refer to is for readers
                self.parts += [name.encode(), _bytes(member)]
            else:
                self.add(name, member)
        for base in cls.__bases__:
            self.add("base", base, said=False)
        if not is_foreign(type(cls)):
            self.add("metaclass", type(cls))

    def _function(self, function: FunctionType) -> None:
        """Tells a function: its code; defaults and closure; of a user's own, globals and attributes too."""
        self.parts.append(_bytes(function))
        if (wrapped := next((vars(function)[k] for k in INNER if k in vars(function)), None)) is not None:
            self.add("__wrapped__", wrapped)
            return
        own = not is_foreign(function)
        defaults = (function.__defaults__, function.__kwdefaults__) if own else ()
        for each in (each for each in defaults if not _is_plain(each)):
            self.add("defaults", each)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name != "__class__" and (found := held(cell)):
                self.add(name, *found)
        if not own or is_installed_file(function.__code__.co_filename):  # a decorator's copies the name of its module
            return
        for name, value in _globals(function):
            self.add(name, value)
        for name, value in sorted(vars(function).items()):
            if name != "__wrapped__" or id(value) not in self.met:  # most decorators close over it
                self.add(name, value)

    def _container(self, value: Any) -> None:
        self.parts.append(type(value).__name__.encode() + b"(")
        if isinstance(value, (set, frozenset)):
            self.parts += sorted(map(self._apart, value))  # a set has another order in every process
        elif isinstance(value, (dict, MappingProxyType)):
            for key, item in value.items():
                self.tell(key)
                self.tell(item)
        else:
            for item in value:
                self.tell(item)
        self.parts.append(b")")

    def _apart(self, item: object) -> bytes:
        """Returns the bytes of an item of a set, whatever items come before it."""
        walk = _Walk()
        walk.met, walk.last = dict(self.met), dict(self.last)
        walk.tell(item)
        return b"\0".join(walk.parts)

    def _object(self, value: Any) -> None:
        kind = type(value)
        known = _known(value)
        if known is not None:
            self.parts.append(known)
        elif (wrapped := _wrapped(value)) is not None:
            self.parts.append(kind.__qualname__.encode())
            self.add("__wrapped__", wrapped)
        elif isinstance(value, WEAK) or (state := _state(value)) is None:
            self.parts.append(_bytes(value))
        else:
            self._container(state)


def _globals(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yields name and value of the globals that a function loads, and of what it may use of a user's own modules."""
    known, attributes = function.__globals__, names(function.__code__)
    for name in sorted(_loaded(function.__code__)):
        if name in known:
            yield name, known[name]
            yield from _used(name, known[name], attributes, ())


def _loaded(code: CodeType) -> set[str]:
    """Returns the names that code, and code inside it, looks up as globals: `names` without those of attributes."""
    found = {i.argval for i in dis.get_instructions(code) if i.opcode in dis.hasname and i.opname in _LOADS}
    return found.union(*(_loaded(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


def _used(name: str, module: object, attributes: set[str], above: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """Yields what a user's own module offers under names that the code has, and its own modules below it."""
    if not isinstance(module, ModuleType) or is_installed(module) or module.__name__ in above:
        return
    if module.__name__.partition(".")[0] == PACKAGE:
        return
    for each in sorted(attributes & vars(module).keys()):
        value = vars(module)[each]
        yield f"{name}.{each}", value
        yield from _used(f"{name}.{each}", value, attributes, (*above, module.__name__))


def _wrapped(value: Any) -> object | None:
    """Returns the function that an object of an installed package wraps, such as one of lru_cache, numba or triton.

    Beside it such an object holds what it has compiled or remembered, which changes while it is used.
    """
    kind = type(value)
    if not is_foreign(kind) or isinstance(value, functools.partial):
        return None
    held = getattr(value, "__dict__", {})
    wanted = "fn" if kind.__module__.startswith("triton.") else "__wrapped__"
    return next((held[k] for k in (*INNER, wanted) if k in held), None)


def _known(value: Any) -> bytes | None:
    """Returns the bytes of a tensor by its numbers, wherever they lie, and of a random generator by its seed, since its
    state differs after every use. None for all others."""
    if isinstance(value, np.random.Generator):
        seeds: Any = value.bit_generator.seed_seq
        return f"{type(value.bit_generator).__name__} {seeds.entropy} {seeds.spawn_key}".encode()
    torch: Any = sys.modules.get("torch")  # which nothing here imports
    if torch is None or not isinstance(value, (torch.Tensor, torch.Generator)):
        return None
    if isinstance(value, torch.Generator):
        return f"{value.device} {value.initial_seed()}".encode()
    if value.layout is not torch.strided or value.is_meta or value.is_quantized:
        return None
    numbers = value.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg().cpu().contiguous()
    about = f"{type(value).__qualname__} {value.dtype} {tuple(value.shape)} {value.requires_grad} "
    return about.encode() + hashlib.sha256(numbers.flatten().view(torch.uint8).numpy()).digest()


def _state(value: Any) -> tuple[object, ...] | None:
    """Returns what makes up an object, as pickle would save it; None where it cannot be saved.

    An instance of a user's class that pickle refuses is its attributes. A `cached_property` is no state.
    """
    kind = type(value)
    made: Any
    try:
        made = value.__reduce_ex__(4)
    except Exception:  # whatever a class raises to say that it cannot be saved
        made = None if is_foreign(kind) else (kind, (), dict(getattr(value, "__dict__", {})))
    if made is None:
        return None
    if isinstance(made, str):  # the name of a global thing, such as a built-in function
        return getattr(value, "__module__", None), made
    make, given, state, *items = (*made, None, None, None)[:5]
    if isinstance(state, dict):
        kept = {k: v for k, v in state.items() if not isinstance(getattr(kind, k, None), functools.cached_property)}
        state = kept or None  # as before its first attribute
    return make, given, state, *(list(each) for each in items if each is not None)


def _is_plain(value: Any, above: tuple[int, ...] = ()) -> bool:
    """Tells whether `_bytes` says all about a value: numbers, text, and containers of such, which hold not themselves.

    above: addresses of the containers that it is in.
    """
    if id(value) in above or getattr(value, "__dict__", None):
        return False
    if isinstance(value, (bool, int, float, complex, str, bytes, CodeType, slice)) or value is None or value is ...:
        return True
    inside = (*above, id(value))
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(_is_plain(each, inside) for each in value)
    if type(value) in (dict, OrderedDict):
        return all(_is_plain(each, inside) for item in value.items() for each in item)
    return False


def _bytes(value: object) -> bytes:
    """Returns bytes that are the same in every process: of code and plain values in full, of other objects the type."""
    match value:
        case CodeType():
            return b"\0".join(map(_bytes, (value.co_code, value.co_names, value.co_varnames, value.co_consts)))
        case FunctionType():
            return b"\0".join(map(_bytes, (value.__code__, value.__defaults__, value.__kwdefaults__)))
        case tuple() | list():
            return b"(" + b"\0".join(map(_bytes, value)) + b")"
        case frozenset() | set():
            return b"{" + b"\0".join(sorted(map(_bytes, value))) + b"}"
        case dict():
            return b"\0".join(_bytes(key) + b":" + _bytes(item) for key, item in value.items())
        case slice():
            return b"slice" + _bytes((value.start, value.stop, value.step))
        case bool() | int() | float() | complex() | str() | bytes() | None:
            return repr(value).encode()
    return type(value).__qualname__.encode()
