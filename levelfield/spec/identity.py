"""Gives values an identity: a canonical description, its hash, and seeds derived by purpose.

    digest(run)                   # the same on every machine, and another for any changed field or version
    derive_seed(0, "mask", 17)    # unrelated to derive_seed(0, "order", 3)

A file that a value reads is part of the identity by its content, not by its path; so is a user's file with its code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_fields = cache(dataclasses.fields)  # a study of many runs describes a class often
_marked = cache(lambda kind: tuple(f for f in _fields(kind) if f.metadata))

HEAD = ("kind", "version", "module", "release")
"""What a description says of the class of a value, beside its fields."""


class ReadsFiles:
    """A value whose meaning depends on files of the user's own, so that their content is part of its identity."""

    @property
    def own_parts(self) -> Mapping[str, Any]:
        """Hashes of these files, as the description of the value has them."""
        return {}


HASHES_OF_CODE: list[Callable[[type], str]] = []
"""What finds the code of a class in a user's file: `own_code` adds it, which is imported before such a file is read."""


class OwnCode(ReadsFiles):
    """A value of which a user may write the class, whose code is then part of its identity."""

    @property
    def own_parts(self) -> Mapping[str, Any]:
        """The hash of the code of a class in a user's file.

        Of a class that ships its name and version say what its code does, and of an installed one its release does.
        """
        found = [sha for of in HASHES_OF_CODE if (sha := of(type(self)))]
        return {"code_sha256": found[0]} if found else {}


def describe(value: Any, *, identity: bool = False) -> Any:
    """Returns a description that JSON can hold: a dataclass becomes {"kind": class name, "version": n, field: ...}.

    A class of another package, which may have the name of one of levelfield's and other code in another release, has
    its "module" and that module's "release" beside its "kind".
    identity: a field marked `field(metadata={"identity": False})`, such as the path of a file whose hash stands beside
    it, counts as None. One marked `{"version": n}` adds that version wherever it is not at its default, because what it
    means there has changed n - 1 times. One marked `{"added": True}` came later than the rest: at its default, which is
    what was done before, it is left out, so that ids stay.
    """
    if value is None or type(value) in (str, int, float, bool):  # nearly all are, and other questions take longer
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        version = getattr(type(value), "version", None)
        head = {"kind": type(value).__name__, **({"version": version} if isinstance(version, int) else {})}
        if isinstance(value, ReadsFiles) and _foreign(type(value)):
            head |= {"module": type(value).__module__, "release": release(type(value).__module__)}
        shown = {f.name: getattr(value, f.name) for f in _fields(type(value))}
        if identity:
            head |= value.own_parts if isinstance(value, ReadsFiles) else {}
            for f in _marked(type(value)):
                shown[f.name] = shown[f.name] if f.metadata.get("identity", True) else None
                if f.metadata.get("added") and shown[f.name] == f.default:
                    del shown[f.name]
                elif "version" in f.metadata and shown[f.name] != f.default:
                    shown[f"{f.name}.version"] = f.metadata["version"]
        return head | {name: describe(v, identity=identity) for name, v in shown.items()}
    if isinstance(value, (list, tuple)):
        return [describe(v, identity=identity) for v in value]
    if isinstance(value, Mapping):
        return {str(k): describe(v, identity=identity) for k, v in value.items()}
    if isinstance(value, (str, int, float, Path)):  # of a class derived from one of them
        return str(value) if isinstance(value, Path) else value
    raise TypeError(f"{type(value).__name__} cannot be part of a run: only dataclasses, numbers, text and tuples can.")


@cache
def release(module: str) -> str:
    """Returns name and version of what installed a module, without the part that tells builds apart; "" of nothing."""
    import importlib.metadata as installed  # takes 20 ms, and most runs have no class of another package

    def version(distribution: str) -> str:
        try:
            return installed.version(distribution).partition("+")[0]
        except installed.PackageNotFoundError:
            return ""

    top = module.partition(".")[0]
    owners = [top] if version(top) else installed.packages_distributions().get(top, [])
    return " ".join(f"{owner}=={version(owner)}" for owner in sorted(set(owners)))


@cache
def _foreign(kind: type) -> bool:
    """Returns whether a class neither ships nor has its code in the identity, as one of a user's file has."""
    return kind.__module__.partition(".")[0] != "levelfield" and not any(of(kind) for of in HASHES_OF_CODE)


def digest(value: Any) -> str:
    """Returns the SHA-256 of all that is part of the identity, in hexadecimal. Of equal numbers 20 and 20.0 differ."""
    text = json.dumps(describe(value, identity=True), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def derive_seed(seed: int, *purpose: object) -> int:
    """Returns a 63-bit seed for one purpose: derive_seed(0, "mask", 17) is unrelated to derive_seed(0, "order", 3)."""
    text = "/".join([str(seed), *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
