"""The code of a mixer's settings, an objective or a probe in a user's file is part of what identifies it."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelfield.mixers.attention import Attention
from levelfield.objectives import Classify
from levelfield.presets import by_name
from levelfield.spec import MixerConfig, digest
from levelfield.user import named

MIXER = """
from levelfield.mixers.attention import Attention as Shipped
from gains import GAIN

UNUSED = 1

class Attention(Shipped):
    def build(self, width, *, causal, layer, generator):
        made = super().build(width, causal=causal, layer=layer, generator=generator)
        for each in made.parameters():
            each.data.mul_(GAIN)
        return made
"""

OBJECTIVE = """
from levelfield.objectives import Classify

class Twice(Classify):
    def loss(self, outputs, batch, shown, spec):
        return 2 * super().loss(outputs, batch, shown, spec)
"""

PROBE = """
from levelfield.spec import Probe

class One(Probe):
    name = "one"

    def measure(self, net, run, load):
        yield {"metric": "one", "value": 1.0, "n": 1}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gains.py").write_text("GAIN = 1\n")
    (tmp_path / "mine.py").write_text(MIXER)
    return tmp_path


def own() -> MixerConfig:
    return by_name.mixer("mine.py:Attention")


def test_a_class_of_a_shipped_name_is_not_the_shipped_one(here: Path):
    assert digest(own()) != digest(Attention())
    assert digest(own()) == digest(own())


def test_an_edited_mixer_is_another_one(here: Path):
    first = digest(own())
    (here / "mine.py").write_text(MIXER.replace("UNUSED = 1", "UNUSED = 2"))
    assert digest(own()) == first
    (here / "mine.py").write_text(MIXER.replace("mul_(GAIN)", "mul_(GAIN + 1)"))
    second = digest(own())
    (here / "gains.py").write_text("GAIN = 3\n")
    assert len({first, second, digest(own())}) == 3


@pytest.mark.parametrize(
    ("source", "name", "old", "new"),
    [(OBJECTIVE, "Twice", "2 *", "3 *"), (PROBE, "One", "1.0", "2.0")],
    ids=["objective", "probe"],
)
def test_an_edited_objective_or_probe_is_another_one(here: Path, source: str, name: str, old: str, new: str):
    found = []
    for text in (source, source.replace(old, new)):
        (here / "other.py").write_text(text)
        module = named.load("other.py", named.source("other.py"))
        found.append(digest(getattr(module, name)()))
    assert found[0] != found[1]


def test_what_ships_has_no_code_in_its_identity():
    assert Attention().own_parts == {} == Classify().own_parts
