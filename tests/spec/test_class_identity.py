"""A class from a notebook cell is another one once anything that it refers to has changed, and not before."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from repository import ROOT

from levelfield.spec import UserError, class_identity
from levelfield.spec.class_identity import identity
from levelfield.spec.user_source import named_files

MINE = """
class Mine:
    def forward(self, x):
        return used(x)
"""
KEEP = "def keep(f):\n    @wraps(f)\n    def g(*a): return f(*a)\n    return g\n"
EDITS = {  # what the cell defines as `used`, what is edited in it, and what it becomes
    "object": ("class Used:\n    def __init__(self): self.rate = 3\nused = Used()", "rate = 3", "rate = 4"),
    "method of an object": ("class Used:\n    def of(self, x): return x\nused = Used()", "return x", "return -x"),
    "bound method": ("class Used:\n    n = 1\n    def of(self): return self\nused = Used().of", "n = 1", "n = 2"),
    "dataclass": ("@dataclass\nclass Used:\n    size: int\nused = Used(32)", "(32)", "(64)"),
    "dataclass with slots": ("@dataclass(slots=True)\nclass Used:\n    size: int\nused = Used(32)", "(32)", "(64)"),
    "default factory": (
        "@dataclass\nclass Used:\n    of: list = field(default_factory=lambda: [1])\nused = Used",
        "[1]",
        "[2]",
    ),
    "nested dataclass": ("@dataclass\nclass Used:\n    of: object\nused = Used([Used({1: 2})])", "1: 2", "1: 3"),
    "enum": ("class Kind(Enum):\n    A = 1\n    B = 2\nused = Kind.A", "Kind.A", "Kind.B"),
    "partial": ("def inner(a): return a\nused = partial(inner, a=0.1)", "0.1", "0.9"),
    "function in a partial": ("def inner(a): return a\nused = partial(inner, a=0.1)", "return a", "return -a"),
    "lru_cache": ("@lru_cache\ndef used(n): return n * 2", "n * 2", "n * 4"),
    "behind a decorator": (f"{KEEP}@keep\ndef used(n): return n * 2", "n * 2", "n * 4"),
    "decorator": (f"{KEEP}@keep\ndef used(n): return n", "return f(*a)", "return -f(*a)"),
    "attribute of a function": ("def used(x): return x * used.by\nused.by = 2", "by = 2", "by = 3"),
    "array": ("used = np.zeros(5000)\nused[4000] = 1", "4000", "4001"),
    "shape of an array": ("used = np.zeros((2, 3))", "(2, 3)", "(3, 2)"),
    "function in a list": ("def one(x): return x * k\nk = 2\nused = [one]", "k = 2", "k = 3"),
    "class in a dict": ("used = {'act': int}", "int", "float"),
    "built-in function": ("from math import sin, cos\nused = sin", "used = sin", "used = cos"),
    "default of an argument": ("from math import sin, cos\ndef used(x, f=sin): return f(x)", "f=sin", "f=cos"),
    "item of a set": ("used = {('a', int), ('b', str)}", "'b', str", "'b', float"),
    "equal to another constant": (
        "heads, layers, size = 1, 2, 1\ndef used(x): return heads, layers, size",
        "2, 1",
        "2, 2",
    ),
    "one of two functions": (
        "def a(x): return x\ndef b(x): return -x\nz = a\ndef used(x): return a(x), b(x), z(x)",
        "z = a",
        "z = b",
    ),
    "cycle": ("used = [1, int]\nused.append(used)", "[1,", "[2,"),
    "random generator": ("used = np.random.default_rng(0)", "rng(0)", "rng(1)"),
    "tensor": ("import torch\nused = torch.zeros(3)\nused[1] = 5", "= 5", "= 6"),
    "tensor in bfloat16": ("import torch\nused = torch.ones(2, dtype=torch.bfloat16)", "ones", "zeros"),
    "view of a tensor": ("import torch\nused = torch.arange(6).view(2, 3).T[1]", "[1]", "[2]"),
    "sparse tensor": ("import torch\nused = torch.eye(3).to_sparse() * 2", "* 2", "* 3"),
    "type of a number": ("import torch\nused = torch.float32", "float32", "float16"),
    "module of torch": ("import torch\nused = torch.nn.LayerNorm(2)\nused.bias.data[:] = 1", "= 1", "= 2"),
}
IMPORTS = """
import threading
import numpy as np
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, lru_cache, partial, wraps
"""


def cell(text: str) -> types.ModuleType:
    """What a notebook has after a cell: names that no file holds."""
    module = types.ModuleType("cell")
    exec(compile(IMPORTS + text + MINE, "<cell>", "exec", dont_inherit=True), vars(module))
    return module


@pytest.mark.parametrize("what", EDITS)
def test_a_changed_part_is_another_class(what: str) -> None:
    text, before, after = EDITS[what]
    assert text.count(before) == 1
    mine = identity(cell(text).Mine)
    assert identity(cell(text).Mine) == mine, "the same text, executed again"
    assert identity(cell(text.replace(before, after)).Mine) != mine


def test_the_same_class_in_another_process_is_the_same(tmp_path: Path) -> None:
    """Where sets have another order and everything another address."""
    kinds = [text.replace("used", f"used{n}") for n, (text, *_) in enumerate(EDITS.values()) if "torch" not in text]
    loads = ", ".join(f"used{n}" for n, _ in enumerate(kinds))
    whole = "\n".join(kinds) + f"\nlock = threading.Lock()\ndef used(x): return lock, {loads}"
    told = identity(cell(whole).Mine)
    (tmp_path / "cell.py").write_text(
        "import sys, types\nfrom levelfield.spec.class_identity import identity\nmodule = types.ModuleType('cell')\n"
        f"exec({IMPORTS + whole + MINE!r}, vars(module))\nsys.stdout.buffer.write(identity(module.Mine))\n"
    )
    there = subprocess.run(
        [sys.executable, str(tmp_path / "cell.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "12345"},
        check=True,
        capture_output=True,
    ).stdout
    assert there == told


USED = """
class Settings:
    @cached_property
    def size(self): return 4
settings, rng, lock = Settings(), np.random.default_rng(0), threading.Lock()
@lru_cache
def doubled(n): return 2 * n
def used(x): return doubled(settings.size), rng.normal(), lock
"""


def test_what_a_class_remembers_while_it_is_used_is_no_part_of_it() -> None:
    made: Any = cell(USED)
    before = identity(made.Mine)
    made.Mine().forward(0)
    assert identity(made.Mine) == before


def test_an_attribute_that_is_called_like_a_global_refers_to_nothing() -> None:
    """`x.mean()` is no use of a global called `mean`, which a notebook may well have."""
    texts = [f"mean = np.full(3, {value})\ndef used(x): return x.mean()" for value in (1, 2)]
    assert identity(cell(texts[0]).Mine) == identity(cell(texts[1]).Mine)


def test_a_name_that_a_closure_has_not_met_yet_refers_to_nothing() -> None:
    """A task made inside a function, by whose code names are used that follow further down."""

    class Own:
        def build(self) -> str:
            return later + "reviews.csv"

    told = identity(Own)
    assert named_files(Own()) == ()
    later = "my "
    assert identity(Own) != told


def test_a_users_own_module_counts_by_what_is_used_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own: Any = types.ModuleType("own")
    own.__file__ = "own.py"
    monkeypatch.setitem(sys.modules, "own", own)
    found = []
    for rate, other in ((1, 1), (1, 2), (2, 2)):
        exec(f"def scaled(x): return x * {rate}\nother = {other}", vars(own))
        found.append(identity(cell("import own\ndef used(x): return own.scaled(x)").Mine))
    assert found[0] == found[1] != found[2]


def test_too_much_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: Any = int
    for _ in range(3000):
        deep = [deep]
    made: Any = cell("used = None")
    made.used = deep
    with pytest.raises(UserError, match="Mine refers to more objects than can be told apart, or to ones nested too"):
        identity(made.Mine)
    monkeypatch.setattr(class_identity, "MOST", 100)
    made.used = [[int, n] for n in range(50)]
    identity(made.Mine)
    made.used = [[int, n] for n in range(200)]
    with pytest.raises(UserError, match=r"put the class into a file and name it FILE\.py:Mine"):
        identity(made.Mine)


def test_numbers_of_a_tensor_count_wherever_they_lie() -> None:
    made: Any = cell("used = None")
    made.used = torch.arange(6.0).reshape(2, 3)
    told = identity(made.Mine)
    made.used = torch.from_numpy(np.arange(6.0, dtype=np.float32).reshape(3, 2).reshape(2, 3)).T.contiguous().T
    assert identity(made.Mine) == told
