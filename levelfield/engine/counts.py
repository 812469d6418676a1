"""Keeps what the models of shipped studies cost, so that a plan of a printed size takes seconds.

Counting the FLOPs of one large model takes about a second, and a table of a paper has sixty of them. The counts are the
same on every machine, so `python docs/scripts/counts.py` writes them to `counts.json`, where a plan looks before it
counts:

    asked = Question.of(task, model, objective, lengths, most=512)
    shipped().find(asked)          # Counted(parameters=804874, costs=...); None where the caller has to count

An entry is used only where it is what counting would give: with the same release of torch, and as long as the code that
decides it is the same. That is the code of the network, of the counting, of the model's mixers and of what these import
from `mixers` and `ops`; comments, docstrings and layout make no difference. Ledgers read nothing here: they count.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from levelfield.files import read_json, write_json
from levelfield.objectives import Trainable, heads
from levelfield.runs.flops import Cost, Costs, nodes
from levelfield.spec import Input, Model, Signal, Task
from levelfield.spec.identity import digest
from levelfield.spec.protocol import Head

PACKAGE = Path(__file__).parents[1]
FILE = Path(__file__).with_suffix(".json")
OBJECTIVES = ("objectives/__init__.py", "objectives/base.py", "objectives/label_sets.py")
CORE = ("model.py", *OBJECTIVES, "data/batches.py", "ops/arithmetic.py", "runs/flops.py", "runs/ledger.py")
FOLLOWED = ("mixers", "ops")  # folders whose files count where they are imported
DIGITS = 16  # of a hash, in hexadecimal
IMPORT = re.compile(r"^\s*from levelfield\.([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)


class Counted(NamedTuple):
    """The parameters of a network, and what a training step costs."""

    parameters: int
    costs: Costs


@dataclass(frozen=True)
class Question:
    """All that decides the counts of one network. documents: sequences of an example. masked: whether there is padding.
    lengths: those that are counted. most: steps beyond which layers are extrapolated."""

    model: Model
    input: Input
    heads: tuple[Head, ...]
    flag: bool
    documents: int
    lengths: tuple[int, ...]
    masked: bool
    most: int

    @staticmethod
    def of(task: Task, model: Model, objective: Trainable, lengths: np.ndarray, most: int) -> Question:
        """Asks for a network with the heads of one objective. lengths: (N,), those of the sequences that occur."""
        return Question(
            model=replace(model, name=None),
            input=task.input,
            heads=heads(objective, task),
            flag=objective.masks_inputs and isinstance(task.input, Signal),
            documents=task.documents,
            lengths=tuple(nodes(lengths)),
            masked=bool((lengths != lengths[0]).any()),
            most=most,
        )

    @property
    def key(self) -> str:
        return digest(self)[:DIGITS]

    @property
    def ours(self) -> bool:
        """Whether all mixers are levelfield's own; others lie in files that this module does not follow."""
        return all(type(mixer).__module__.startswith("levelfield.mixers.") for mixer in self.model.mixers)

    @property
    def sources(self) -> set[str]:
        """The files whose code decides the counts, relative to the package."""
        return followed(
            f"{type(mixer).__module__.partition('.')[2].replace('.', '/')}.py" for mixer in self.model.mixers
        )


@dataclass
class Counts:
    """Counts by the key of their question. torch: the release they were made with. sources: for each file the hashes of
    its bytes and of its code. entries: parameters, then the parts of the cost at each length."""

    torch: str
    sources: dict[str, str] = field(default_factory=dict)
    entries: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def read(path: Path = FILE) -> Counts:
        """Returns those of a file; none where there is no file, or it is of another torch."""
        known = read_json(path, "Install levelfield again.") if path.exists() else {}
        now = release()
        return Counts(**known) if known.get("torch") == now else Counts(now)

    def find(self, asked: Question) -> Counted | None:
        """Returns what is known; None where nothing is, or where code has changed since."""
        if not self.entries or not asked.ours or (found := self.entries.get(asked.key)) is None:
            return None
        if not all(same(name, self.sources.get(name, "")) for name in asked.sources):
            return None
        parameters, *parts = map(float, found.split())
        costs = tuple(Cost(a, b, c, d) for a, b, c, d in zip(*[iter(parts)] * 4, strict=True))
        return Counted(int(parameters), Costs(asked.lengths, costs))

    def write(self, found: Mapping[Question, Counted], path: Path = FILE) -> None:
        """Writes these counts, and no others, with the code as it is now."""
        names = sorted(set[str]().union(*(asked.sources for asked in found)))
        entries = {asked.key: _flat(counted) for asked, counted in found.items()}
        sources = {name: f"{hashed(content(name))} {hashed(code(content(name)))}" for name in names}
        write_json(path, {"torch": release(), "sources": sources, "entries": dict(sorted(entries.items()))})


@cache
def shipped() -> Counts:
    return Counts.read()


def release() -> str:
    """The release of torch, such as 2.13.0, whatever it was built for."""
    return torch.__version__.partition("+")[0]


def _flat(counted: Counted) -> str:
    """Writes the parameters, then the parts of the cost at each length, to the last digit."""
    return " ".join(f"{x:.17g}" for x in (counted.parameters, *(x for cost in counted.costs.costs for x in cost.parts)))


def followed(first: Iterable[str]) -> set[str]:
    """Returns these files, those of the network and the counting, and what they import from mixers and operators."""
    found: set[str] = set()
    left = [*CORE, *first]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left += imported(name)
    return found


@cache
def imported(name: str) -> tuple[str, ...]:
    """The files of mixers and operators that one file imports, wherever in it."""
    return tuple(found for module, names in IMPORT.findall(content(name).decode()) for found in _files(module, names))


def _files(module: str, names: str) -> Iterator[str]:
    """Yields the module's own file, and those of the names that are modules themselves."""
    if module.partition(".")[0] not in FOLLOWED:
        return
    folder = module.replace(".", "/")
    for path in (folder, f"{folder}/__init__", *(f"{folder}/{name}" for name in re.findall(r"\w+", names))):
        if (PACKAGE / f"{path}.py").is_file():
            yield f"{path}.py"


@cache
def content(name: str) -> bytes:
    return (PACKAGE / name).read_bytes()


@cache
def same(name: str, hashes: str) -> bool:
    """Whether a file's code is the one with the second hash; equal bytes, which are hashed faster, have equal code."""
    return hashed(content(name)) in hashes.split()[:1] or hashed(code(content(name))) in hashes.split()[1:]


def code(source: bytes) -> bytes:
    """Returns a module's code without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree).encode()


def hashed(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:DIGITS]
