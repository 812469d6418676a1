"""The keywords of the two functions that Python users call, and the names that they need for them."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch
from torch import Generator, Tensor, nn

import levelfield
from levelfield import UserError, api
from levelfield.api import Choices
from levelfield.mixers.s4 import S4
from levelfield.presets import comparison, efforts
from levelfield.presets.options import Options
from levelfield.spec import digest
from levelfield.tasks.recall import Recall


@pytest.mark.parametrize(
    ("given", "written"), [("attention", "attention(heads=8)"), ("conv(kernel=3)", "conv(heads=8)")]
)
def test_settings_beside_a_name_are_refused(given: str, written: str):
    with pytest.raises(UserError) as refused:
        levelfield.compare(given, "recall", "scratch", "smoke", settings={"heads": 8})
    assert str(refused.value).endswith(f"write them into the name, '{written}'.")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_audit_takes_at_run_time_what_its_types_promise_and_no_more():
    (promised,) = get_args(get_type_hints(levelfield.audit)["places"])
    for name in get_type_hints(promised):
        with pytest.raises(UserError, match="no_such_data"):
            levelfield.audit("no_such_data", **{name: "x"})
    for name in get_type_hints(Choices).keys() - get_type_hints(promised).keys():
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            levelfield.audit("no_such_data", **{name: None})


def test_earlier_names_of_folders_warn_and_go_on_working():
    with pytest.warns(DeprecationWarning) as said:
        found = api._renamed("compare", Choices(out="a", to="b", data="c"), Choices.__annotations__)
    assert found == {"runs_dir": "a", "report_dir": "b", "data": "c"}
    assert [str(each.message) for each in said] == [
        "compare(out=...) is now compare(runs_dir=...)",
        "compare(to=...) is now compare(report_dir=...)",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert api._renamed("compare", Choices(**found), Choices.__annotations__) == found


@pytest.mark.parametrize("call", [levelfield.compare, levelfield.audit], ids=["compare", "audit"])
@pytest.mark.parametrize(
    ("words", "complaint"),
    [({"oout": "a"}, "unexpected keyword argument 'oout'"), ({"out": "a", "runs_dir": "b"}, "both 'runs_dir' and")],
)
def test_unknown_and_double_keywords_are_refused(call: Callable[..., Any], words: dict[str, str], complaint: str):
    with pytest.raises(TypeError, match=complaint):
        call("parity", **words)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"effort": None}, "There is no effort 'None'"),
        ({"trials": "a"}, "trials='a' cannot be: give a whole number"),
        ({"settings": "gain=2"}, "settings='gain=2' cannot be: give a dict"),
        ({"numerics": "bf16"}, r"numerics='bf16' cannot be: give Numerics\(precision='bf16'\)"),
        ({"equal": "tokens"}, "equal='tokens': choose one of: steps, flops"),
    ],
)
def test_a_keyword_of_another_kind_is_refused_in_a_sentence(words: dict[str, Any], complaint: str, tmp_path: Path):
    given: dict[str, Any] = {"tasks": None, "protocols": None, "baselines": None, "effort": "smoke"} | words
    with pytest.raises(UserError, match=complaint):
        levelfield.compare("conv", report_dir=tmp_path, runs_dir=tmp_path, **given)


def test_an_audit_of_what_is_no_data_is_refused_in_a_sentence():
    with pytest.raises(UserError, match="None is no task: give a name"):
        levelfield.audit(None)  # pyright: ignore[reportArgumentType]


def test_a_folder_of_reports_that_cannot_be_written_is_refused_before_anything_is_trained(tmp_path: Path):
    (tmp_path / "report").write_text("a file")
    with pytest.raises(UserError, match="report_dir="):
        levelfield.compare("conv", "recall", "scratch", "smoke", runs_dir=tmp_path, report_dir=tmp_path / "report")
    assert [each.name for each in tmp_path.iterdir()] == ["report"]


def test_the_public_names_are_there_and_are_all_that_the_public_functions_ask_for():
    for name in levelfield.__all__:
        assert getattr(levelfield, name) is not None
    assert {"Numerics", "ParamRule", "Published", "Search", "StepLabels"} <= set(levelfield.__all__)


def test_help_names_every_keyword_with_its_default():
    told = inspect.getdoc(levelfield.compare) or ""
    for name in levelfield.Choices.__annotations__.keys() - api.RENAMED:
        assert re.search(rf"\b{name}\b", told), name
    usual = efforts.SIZES["minutes"]
    sentence = " ".join(told.split())
    for name in ("seeds", "steps", "width", "depth", "lr", "batch"):
        assert re.search(rf"\b{name}\b[^;]* {getattr(usual, name)}[;.]", sentence), name
    assert set(levelfield.Choices.__annotations__) - set(api.Places.__annotations__) == {
        *(each.name for each in fields(Options)),
        "numerics",
    } - {"tasks", "protocols", "baselines"}


class Mine(nn.Linear):
    """A mixer, defined as in a notebook."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width)


def made(width: int, depth: int = 2) -> nn.Module:
    """Returns a mixer of so many layers."""
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))


def test_classes_functions_configs_and_tasks_are_taken_as_names_are() -> None:
    """Each is built; the number of layers is a setting."""
    assert [api._config(given, {}).label for given in (Mine, made, S4(), S4)] == ["mine", "made", "s4", "s4"]
    shallow, deep = (api._config(made, {"depth": depth}) for depth in (1, 3))
    for mixer, many in ((shallow, 2), (deep, 6)):
        layer = mixer.build(8, causal=True, layer=0, generator=Generator().manual_seed(0))
        assert len(list(layer.parameters())) == many
    task = Recall(pairs=6, train=64, val=32, test=32)
    options = api._options([task, "parity,dyck"], "scratch", [Mine, made, S4(), "conv"], Choices(seeds=1))
    assert options.tasks == (task, "parity", "dyck")
    runs = comparison.compare(api._config(made, {"depth": 1}), replace(options, tasks=(task,))).runs("smoke")
    assert {run.task for run in runs} == {task}
    assert len({run.model.label for run in runs}) == 5


def test_arguments_of_a_partial_are_settings() -> None:
    """As they are beside a class: the same runs, whichever way they are given, though one is inside the other."""
    written = api._config(made, {"depth": 3})
    for given, settings in ((partial(made, depth=3), {}), (partial(partial(made, depth=2), depth=3), {})):
        assert digest(api._config(given, settings)) == digest(written)
    assert api._config(partial(made, depth=2), {"depth": 3}) == written
    assert api._config(partial(S4, state=8), {}) == S4(state=8)
    assert api._options("recall", "scratch", partial(made, depth=3), Choices()).baselines == (written,)
    with pytest.raises(UserError, match="has arguments by position: give them by name, as in partial"):
        api._config(partial(made, 8), {})


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"baselines": [made(2)]}, "This Sequential is a module that is built already: pass its class"),
        ({"baselines": 3}, "3 is not a subclass of torch.nn.Module"),
        ({"tasks": [3]}, "3 is no task: give a name"),
        ({"protocols": [None]}, "None is no name of a protocol"),
        ({"seeds": "2"}, "seeds='2' cannot be: give a whole number from 1 to 1,000."),
        ({"width": 16.0}, "width=16.0 cannot be"),
        ({"lr": "high"}, "lr='high' cannot train"),
    ],
)
def test_what_is_neither_is_refused_in_one_line(words: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError) as refused:
        levelfield.compare(Mine, **words)
    assert str(refused.value).startswith(complaint) and "\n" not in str(refused.value)


class Thirds(nn.Linear):
    def __init__(self, width: int) -> None:
        if width % 3:
            raise ValueError("take a multiple of 3")
        super().__init__(width, width)


def test_a_width_that_a_constructor_refuses_is_answered_with_the_option() -> None:
    with pytest.raises(UserError, match=r"multiple of 3: give another width \(--width\)\."):
        api._config(Thirds, {}).build(8, causal=True, layer=0, generator=Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"tasks": "text"}, "^text is not prepared: start with `levelfield data prepare text`.$"),
        ({"tasks": "recall", "device": "cuda:7"}, "cuda:7"),
        ({"tasks": "recall", "numerics": levelfield.Numerics(precision="tf32"), "device": "cpu"}, "tf32"),
    ],
    ids=["data", "device", "numerics"],
)
def test_a_comparison_that_cannot_be_run_is_refused_before_anything_is_written(
    given: dict[str, Any], refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=refusal):
        levelfield.compare("conv", protocols="scratch", effort="smoke", baselines="gru", runs_dir="runs", **given)
    assert not [*tmp_path.rglob("*")]


def test_a_comparison_says_that_a_batch_is_larger_than_the_training_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    monkeypatch.setattr(api, "execute", lambda run, *_, **__: said.append("trained"))
    monkeypatch.setattr(api.report, "build", lambda *_: ())
    task = Recall(pairs=6, train=30, val=10, test=10)
    levelfield.compare("conv", task, "scratch", "smoke", baselines="gru", steps=2, batch=64, say=said.append)
    assert said[0].startswith("A batch of 64 is larger than the 30 training examples of recall")
    assert said[2] == "trained"


KEPT: dict[int, Tensor] = {}


def mask(length: int) -> Tensor:
    return KEPT.setdefault(length, torch.ones(length, length).tril())


@lru_cache
def remembered(length: int) -> Tensor:
    return torch.ones(length, length).tril()


class Filling(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(mask(x.shape[1]) @ x)


class Remembering(Filling):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(remembered(x.shape[1]) @ x)


@pytest.mark.parametrize(("own", "several"), [(Filling, True), (Remembering, False)])
def test_a_mixer_that_fills_a_dictionary_of_its_file_is_told_that_it_will_be_another_one(
    own: type[nn.Module], several: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    KEPT.clear()
    for times in (1, 2):
        found = levelfield.compare(own, "recall", "scratch", "smoke", baselines="conv", say=lambda line: None)
        assert any("functools.lru_cache" in each for each in found.remarks) == (several and times == 1)
        assert len([*Path("runs").glob(f"*{own.__name__.lower()}*")]) == (times if several else 1)
