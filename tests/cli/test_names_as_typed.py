"""What names a mixer, a file or a column is taken as it was typed, with blanks and settings, or refused by its name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from levelfield import OwnData
from levelfield.cli.app import main
from levelfield.cli.own_options import NO_COLUMNS
from levelfield.cli.track_command import run_folders
from levelfield.engine.find import AUDIT, Source
from levelfield.mixers.attention import Attention
from levelfield.presets import by_name
from levelfield.presets.options import columns, names
from levelfield.runs import store
from levelfield.spec import UserError
from levelfield.user.mixer import mixer_of

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_a_word_that_is_a_file_is_taken_whole(here: Path) -> None:
    (here / "my mixers").mkdir()
    (here / "my mixers" / "a, b.py").touch()
    (here / "a.py").touch()
    whole = "my mixers/a, b.py:Mine(x=1, y=2)"
    assert names([whole, "s4 conv"]) == (whole, "s4", "conv")
    assert names(["my mixers"]) == ("my mixers",)
    assert names(["a.py:M, a.py:N"]) == ("a.py:M", "a.py:N"), "two mixers in one pair of quotes"
    assert names(["no file.py:M"]) == ("no", "file.py:M") and names(["a\0b", " "]) == ("a\0b",)


def test_columns_keep_their_blanks(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert columns(["heart rate, ecg", "late ill"]) == ("heart rate", "ecg", "late ill")
    (here / "v.csv").write_text("heart rate,late ill\n" + "".join(f'"[{i}, 2, 3]",{i}\n' for i in range(60)))
    words = ("data", "prepare", "v.csv", "--channels", "heart rate", "--target")
    assert "no column 'late il'" in refused(capsys, *words, "late il")
    main([*words, "late ill"])


def test_import_names_a_file_that_is_missing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "There is no file or folder sp ace/run:" in refused(capsys, "import", "sp ace/run")
    (here / "answers.jsonl").touch()
    assert "the model with --model" in refused(capsys, "import", "answers.jsonl")


def test_a_mixer_that_ships_takes_settings() -> None:
    assert by_name.mixer("attention(heads=7)") == Attention(heads=7) and by_name.is_mixer("attention(heads=7)")
    with pytest.raises(UserError, match="The mixer attention has no setting 'head': did you mean 'heads'"):
        by_name.mixer("attention(head=7)")
    with pytest.raises(UserError, match="There is no mixer 'atention': did you mean 'attention'"):
        by_name.mixer("atention(heads=7)")


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("atention", "Nothing is called 'atention': did you mean 'attention'?"),
        ("localty", "Nothing is called 'localty': did you mean 'locality'?"),
        ("reech(range=8)", "Nothing is called 'reech': did you mean 'reach'?"),
        ("attention(heads='x')", "The setting heads of the mixer attention is a whole number, and 'x' is none."),
        ("attention(heads=2.5)", "The setting heads of the mixer attention is a whole number, and 2.5 is none."),
        ("wide", "Nothing is called 'wide': `levelfield list` shows all "),
        ("qqqqq", "Nothing is called 'qqqqq': `levelfield list` shows all "),
    ],
)
def test_check_knows_mixers_and_probes_by_near_names(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, sentence: str
) -> None:
    assert sentence in refused(capsys, "check", name)


def test_check_of_data_names_the_command_that_looks_at_them(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "my data.csv").write_text("x,y\na,1\n")
    said = refused(capsys, "check", "my data.csv")
    assert "my data.csv is data and no code" in said and "`levelfield audit 'my data.csv'`, with --text" in said


def test_an_audit_of_own_data_is_called_by_its_file(here: Path) -> None:
    (here / "reviews.csv").write_text("x,y\na,1\n")
    assert str(Source(AUDIT, repr(OwnData("reviews.csv", text="x", label="y")))) == "audit of reviews.csv"
    assert str(Source(AUDIT, "listops")) == "audit listops"


@pytest.mark.parametrize(
    "words, kind",
    [
        (["data", "prepare", "zqx"], "tasks"),
        (["audit", "zqx"], "tasks"),
        (["compare", "conv", "--tasks", "zqx"], "tasks"),
        (["compare", "zqx"], "mixers"),
        (["compare", "conv", "--baselines", "zqx"], "mixers"),
        (["plan", "zqx"], "studies"),
        (["report", "zqx.py"], "studies"),
    ],
)
def test_a_name_that_is_like_no_other_leads_to_the_list_and_is_no_list(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], kind: str
) -> None:
    said = refused(capsys, *words)
    assert "zqx" in said and f"`levelfield list {kind}` shows all " in said and len(said) < 250, said


def test_a_folder_of_data_is_taken_by_a_bare_word_unless_a_task_or_study_has_the_name(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("arrays", "recall", "demo"):
        (here / name).mkdir()
        np.save(here / name / "x.npy", np.arange(400).reshape(100, 4))
        np.save(here / name / "y.npy", np.arange(100) % 2)
        taken = NO_COLUMNS.source(name)
        assert taken == (repr(OwnData("arrays")) if name == "arrays" else name)
    assert "no task has that name: give data with --own arrays." in refused(capsys, "plan", "s4", "--tasks", "arrays")
    assert "There is no task 'arays'" in refused(capsys, "data", "prepare", "arays")


def test_a_file_of_data_among_tasks_is_answered_with_how_its_columns_are_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "rev.csv").write_text("body,stars\ngood,5\n")
    said = refused(capsys, "plan", "s4", "--tasks", "rev.csv")
    assert "--own rev.csv --text COLUMN --label COLUMN" in said and "OwnData('rev.csv', text=..., label=...)" in said
    assert "There is no task 'none.csv'" in refused(capsys, "plan", "s4", "--tasks", "none.csv")


def test_a_task_that_ruler_does_not_have_is_answered_with_the_nearest_or_with_the_sets(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no task 'niah_single': did you mean 'niah_single_" in refused(
        capsys, "ruler", "m", "--tasks", "niah_single"
    )
    said = refused(capsys, "ruler", "m", "--tasks", "zqxzqx")
    assert "choose one of the sets all, needles, " in said and len(said) < 260


@pytest.mark.parametrize("command", ["check", "compare", "run", "reach"])
def test_a_class_behind_a_dot_is_one_behind_a_colon(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'torch.nn:GRU'?" in refused(capsys, command, "torch.nn.GRU")
    assert "torch.nn.GRU is no module: did you mean 'torch.nn:GRU(bias=False)'?" in refused(
        capsys, command, "torch.nn.GRU(bias=False)"
    )


@pytest.mark.parametrize(
    "words", ["compare s4 --text t", "run s4 --text t", "plan s4", "audit listops", "data prepare recall"]
)
def test_a_file_of_data_is_told_from_the_folder_of_prepared_data(
    here: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    (here / "my r.parquet").touch()
    shown = refused(capsys, *words.split(), "--data", "my r.parquet")
    assert "--data is the folder of prepared data" in shown and "with --own 'my r.parquet', or to" in shown
    assert "`levelfield audit 'my r.parquet'`" in shown and shown.count("\n") == 1


def test_a_configuration_that_is_none_is_told_what_to_derive_from(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "mine.py").write_text(
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Mine:\n    state: int = 4\n"
        "    def build(self, width, *, causal, layer, generator):\n        return None\n"
    )
    fix = "not a subclass of torch.nn.Module: derive it from levelfield.MixerConfig"
    for command in ("compare", "check"):
        assert fix in refused(capsys, command, "mine.py:Mine")
    with pytest.raises(UserError, match=fix):
        mixer_of(dataclass(type("Mine", (), {"build": lambda self, width: None})))


@pytest.mark.parametrize("words", [["ruler", "-model"], ["audit", "-model", "--text", "x"], ["ruler", "x", "-model"]])
def test_a_path_that_begins_as_an_option_does(here: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    (here / "-model").mkdir()
    assert "-model begins as an option does: write ./-model for the path." in refused(capsys, *words)
    (here / "-model").rmdir()
    assert "write ./-model" not in refused(capsys, *words)


def test_an_option_behind_two_hyphens_is_told_where_it_belongs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "-model").mkdir()
    said = refused(capsys, "ruler", "--", "-model", "--lengths", "700")
    assert "--lengths stands after '--', which ends the options of levelfield ruler: write options before it" in said
    assert "-model holds no weights" in refused(
        capsys, "ruler", "--lengths=700", "--tasks=niah_single_1", "--", "-model"
    )
    assert "-model holds no weights" in refused(capsys, "ruler", "./-model", "--lengths=700", "--tasks=niah_single_1")


def test_a_run_has_its_name_inside_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "runs" / "recall-s4-scratch-0-5f0c9a1e2b"
    (where / ".lease").mkdir(parents=True)
    (where / store.SPEC).write_text("{}")
    for here, typed in ((where, "."), (where / ".lease", ".."), (tmp_path, f"runs/{where.name}/")):
        monkeypatch.chdir(here)
        out, run_id = store.located(Path("elsewhere"), typed)
        assert (out.resolve(), run_id) == (where.parent.resolve(), where.name)
        assert [(each.parent.resolve(), each.name) for each in run_folders(Path(typed))] == [(out.resolve(), run_id)]
