"""`levelfield.load`: the trained network of a run's folder and of an exported one, whose card says how."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import recipe
from torch import nn

import levelfield
from levelfield import protocols
from levelfield.cli.app import main
from levelfield.presets import by_name, efforts
from levelfield.run import execute, load_net
from levelfield.runs import share, store
from levelfield.spec import MixerConfig, Run, UserError
from levelfield.user.mixer import user_mixer

HELPER = "from torch import nn\n\ndef layer(width):\n    return nn.Linear(width, width)\n"
MINE = """from torch import nn
from helper import layer

class Mine(nn.Module):
    def __init__(self, width: int, gain: float = 1.0) -> None:
        super().__init__()
        self.gain, self.mix = gain, layer(width)

    def forward(self, x):
        return self.gain * self.mix(x)
"""


class Passed(nn.Linear):
    def __init__(self, width: int) -> None:
        super().__init__(width, width)


def trained(mixer: MixerConfig, out: Path) -> tuple[Run, Path]:
    """A complete run of a mixer on a small task of levelfield, and its folder."""
    model = replace(efforts.model("recall", efforts.ATTENTION, "smoke"), mixers=(mixer,), width=8)
    made = Run(efforts.generated("recall", "smoke"), model, protocols.scratch(recipe(1)), 0)
    where = store.directory(out, made)
    execute(made, where, out.parent / "data", "cpu")
    return made, where


def call_on(card: str) -> list[str]:
    """The arguments of `levelfield.load` as a card gives them."""
    (line,) = [line for line in card.splitlines() if "levelfield.load(" in line and line.startswith("    net")]
    call = ast.parse(line.strip()).body[0]
    assert isinstance(call, ast.Assign) and isinstance(call.value, ast.Call)
    return [ast.literal_eval(each) for each in call.value.args]


def same(one: nn.Module, other: nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_folder_of_a_run_and_an_exported_one_give_the_trained_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made, where = trained(efforts.ATTENTION, tmp_path / "runs")
    main(["export", made.id, "--folder", "given", "--license", "mit"])
    monkeypatch.chdir(where)
    for net in (levelfield.load(where), levelfield.load("."), levelfield.load(tmp_path / "given")):
        assert same(net, load_net(made, where)) and not net.training
        hidden = net.hidden_states(torch.zeros(2, 5, dtype=torch.long), None)
        assert hidden.shape == (2, 5, 8)
    card = (tmp_path / "given" / "README.md").read_text()
    head = dict(line.split(": ", 1) for line in card.split("---")[1].strip().splitlines())
    assert call_on(card) == ["given"]
    assert json.loads(head["license"]) == "mit" and json.loads(head["metrics"]) == ["accuracy"]
    (result,) = json.loads(head["model-index"])[0]["results"]
    rows = [row for row in store.run_rows(where / store.ROWS) if row.get("protocol") == "scratch"]
    assert result["dataset"]["type"] == "recall" and result["task"]["type"]
    assert result["metrics"][0]["value"] in [row.get("value") for row in rows if row.get("split") == "test"]


def test_the_users_own_source_comes_along_and_only_load_executes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "helper.py").write_text(HELPER)
    (mine / "my.py").write_text(MINE)
    made, where = trained(by_name.mixer(f"{mine}/my.py:Mine(gain=0.5)"), tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    main(["export", str(where), "--folder", "given"])
    (mine / "my.py").write_text("raise ValueError\n")
    for file, text in (("my.py", MINE), ("helper.py", HELPER)):
        assert (Path("given") / "source" / file).read_text() == text
    card = (Path("given") / "README.md").read_text()
    assert "license" in card and '"unknown"' in card and "neither reads nor executes" in card
    place = "given/source/my.py:Mine"
    assert call_on(card) == ["given", place]
    with pytest.raises(UserError, match=rf"whose source is given/source/my\.py: read it, and .*'{place}'\) executes"):
        levelfield.load("given")
    net = levelfield.load("given", place)
    assert {vars(each)["gain"] for each in net.modules() if type(each).__name__ == "Mine"} == {0.5}
    main(["import", "given", "--runs-dir", "others"])
    assert {path.name for path in (Path("others") / made.id).iterdir()} <= {*share.KEPT}
    (Path("given") / "source" / "helper.py").write_text(HELPER.replace("width, width", "width, width, bias=False"))
    with pytest.raises(UserError, match="and would be"):
        levelfield.load("given", place)
    main(["export", str(where), "--folder", "given"])
    assert not list((Path("given") / "source").glob("*.py")), "the source is another one now"
    assert "had changed since the run" in (Path("given") / "README.md").read_text()


def test_a_class_of_a_package_or_from_python_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, where = trained(by_name.mixer("torch.nn:GRU(bidirectional=True)"), tmp_path / "runs")
    main(["export", str(where), "--folder", "given"])
    card = (Path("given") / "README.md").read_text()
    assert f"Its mixer is torch.nn:GRU, of torch=={torch.__version__.partition('+')[0]}." in card
    with pytest.raises(UserError, match=r"name it, levelfield\.load\('given', 'torch\.nn:GRU'\)"):
        levelfield.load("given")
    assert levelfield.load(*call_on(card)).blocks
    _, where = trained(user_mixer(Passed), tmp_path / "runs")
    main(["export", str(where), "--folder", "other"])
    assert "passed from Python" in (Path("other") / "README.md").read_text()
    with pytest.raises(UserError, match=r"pass it again, levelfield\.load\('other', Passed\)"):
        levelfield.load("other")
    assert levelfield.load("other", Passed).blocks


def test_another_class_is_called_another_and_not_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain.py").write_text(f"{MINE.replace('helper', 'plainer')}\nclass Other(Mine):\n    pass\n")
    Path("plainer.py").write_text(HELPER)
    made, where = trained(by_name.mixer("plain.py:Mine"), tmp_path / "runs")
    for given, called in (("plain.py:Other", "plain.py:Other"), (Passed, "Passed, passed from Python")):
        with pytest.raises(UserError) as sent:
            levelfield.load(where, given)
        assert str(sent.value) == f"{made.id} is made of plain.py:Mine and not of {called}: give 'plain.py:Mine'."
    Path("plainer.py").write_text(HELPER.replace("width, width", "width, width, bias=False"))
    with pytest.raises(UserError, match="has changed since, and would be"):
        levelfield.load(where, "plain.py:Mine")
    made, where = trained(user_mixer(Passed), tmp_path / "runs")
    with pytest.raises(UserError) as sent:
        levelfield.load(where, "plain.py:Mine")
    said = "is made of Passed and not of plain.py:Mine: pass Passed itself, from Python."
    assert str(sent.value) == f"{made.id} {said}"


def test_what_is_no_whole_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no folder of a run"):
        levelfield.load(tmp_path)
    _, where = trained(efforts.ATTENTION, tmp_path / "runs")
    (where / store.WEIGHTS).write_bytes(b"x")
    with pytest.raises(UserError, match="has changed since the run was complete"):
        levelfield.load(where)
    (where / store.DONE).unlink()
    with pytest.raises(UserError, match="is not complete"):
        levelfield.load(where)
