"""Counts that ship: they are what counting gives, a plan uses them, and code that has changed makes them unknown."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from repository import SCRIPTS

from levelfield.engine import counts, plan
from levelfield.engine.counts import Counted, Counts, Question
from levelfield.engine.find import Source, choose
from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.mixers.deltanet import DeltaNet
from levelfield.mixers.hymba import Hymba
from levelfield.mixers.s4 import S4
from levelfield.objectives import Classify
from levelfield.runs.flops import Cost, Costs
from levelfield.spec import MixerConfig, Model
from levelfield.tasks.listops import ListOps

TASK = ListOps(minimum=10, length=40)
MODEL = Model((Conv(3, hidden=8),), 1, 8)
COUNTED = Counted(123, Costs((39,), (Cost(1.0, 1 / 3, 0.0, 2e20),)))


def question(model: Model = MODEL) -> Question:
    return Question.of(TASK, model, Classify(), plan.example(TASK).lengths, plan.COUNTED)


def written(path: Path) -> Counts:
    """What is read again after COUNTED was written for MODEL."""
    Counts.read(path).write({question(): COUNTED}, path)
    return Counts.read(path)


def test_what_ships_was_counted_with_the_code_as_it_is() -> None:
    """Or a plan at `paper` counts anew for half a minute."""
    known = counts.shipped()
    assert known.entries, "of this release of torch"
    stale = [name for name, hashes in known.sources.items() if not counts.same(name, hashes)]
    assert stale == [], "run python docs/scripts/counts.py"


@pytest.mark.parametrize("place", [2, 8], ids=["s4", "convolution"])
def test_what_ships_is_what_counting_gives(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last digit, and a plan does not count it again."""
    run = choose(Source("every_task").load(), "paper")[place]
    objective = run.protocol.phases[-1].objective
    case = run.task, run.model, objective, plan.example(run.task).lengths
    found = counts.shipped().find(Question.of(*case, plan.COUNTED))
    assert found == plan.count(*case)
    monkeypatch.setattr(plan, "count", lambda *_: pytest.fail("was counted"))
    plan._count.cache_clear()
    assert plan.cost(run).parameters == found.parameters


def test_what_is_written_is_read_to_the_last_digit(tmp_path: Path) -> None:
    known = written(tmp_path / "counts.json")
    assert known.find(question()) == known.find(question(replace(MODEL, name="other name"))) == COUNTED
    assert known.find(question(replace(MODEL, depth=2))) is None
    assert known.find(question(replace(MODEL, mixers=(Conv(5, hidden=8),)))) is None


def test_another_torch_or_no_file_knows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Counts.read(tmp_path / "counts.json").find(question()) is None
    written(tmp_path / "counts.json")
    monkeypatch.setattr(counts, "release", lambda: "1.0.0")
    assert Counts.read(tmp_path / "counts.json").find(question()) is None


@pytest.mark.parametrize("name", ["mixers/conv.py", "model.py", "ops/arithmetic.py"])
def test_code_that_has_changed_makes_counts_unknown_and_prose_does_not(tmp_path: Path, name: str) -> None:
    known = written(tmp_path / "counts.json")
    source = counts.content(name)
    prose = source.replace(b'"""', b'"""Another word. ', 1) + b"\n# a remark\n"
    known.sources[name] = f"{counts.hashed(prose)} {counts.hashed(counts.code(prose))}"
    assert known.find(question()) == COUNTED
    changed = source + b"\nMORE = 1\n"
    known.sources[name] = f"{counts.hashed(changed)} {counts.hashed(counts.code(changed))}"
    assert known.find(question()) is None
    del known.sources[name]
    assert known.find(question()) is None


def test_code_is_all_but_comments_docstrings_and_layout() -> None:
    plain = b"def f(x):\n    return x + 1\n"
    assert counts.code(b'"""Doc."""\ndef f( x ):\n    """Doc."""\n    return (x+1)  # why\n') == counts.code(plain)
    assert counts.code(plain.replace(b"1", b"2")) != counts.code(plain)
    assert counts.code(b'def f():\n    """Doc."""\n') == counts.code(b"def f():\n    pass\n")


@pytest.mark.parametrize("mixer", [Attention(2), DeltaNet(2), Hymba(2), S4()], ids=lambda mixer: mixer.label)
def test_the_code_of_a_mixer_is_all_that_its_module_holds(mixer: MixerConfig) -> None:
    """Every function and class of mixers and operators that it refers to, directly or not, lies in a followed file."""
    held = {module.__name__ for module in reached(sys.modules[type(mixer).__module__])}
    files = {f"{name.partition('.')[2].replace('.', '/')}" for name in held}
    sources = {name.removesuffix(".py").removesuffix("/__init__") for name in question(Model((mixer,), 1, 16)).sources}
    assert len(files) > 1 and files <= sources


def reached(module: ModuleType, seen: set[str] | None = None) -> Iterator[ModuleType]:
    """The modules of mixers and operators in which what a module's names stand for is defined, itself included."""
    seen = set() if seen is None else seen
    if module.__name__ in seen:
        return
    seen.add(module.__name__)
    yield module
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(name, str) and name.startswith(("levelfield.mixers.", "levelfield.ops.")):
            yield from reached(sys.modules[name], seen)


def test_mixers_of_others_are_not_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their files are not followed."""
    known = written(tmp_path / "counts.json")
    monkeypatch.setattr(Conv, "__module__", "mine")
    assert known.find(question()) is None


@pytest.mark.slow
def test_all_shipped_studies_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import counts as command

    monkeypatch.setattr(sys, "argv", ["counts.py", "--check"])
    assert command.main() == 0, "run python docs/scripts/counts.py"
