"""Installed packages that add mixers, tasks, studies and probes: a real one on sys.path, and broken ones beside it."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import toys
from refusals import refused

from levelfield.cli.app import main
from levelfield.engine.find import Source, find_tasks, listed
from levelfield.engine.restore import plugged_kinds, restore
from levelfield.engine.training import Job, attempt
from levelfield.mixers.conv import Conv
from levelfield.presets import by_name, efforts
from levelfield.presets.comparison import arms
from levelfield.presets.options import Options
from levelfield.spec import UserError, describe, digest

pytestmark = pytest.mark.usefixtures("undrawn")

FILES = {
    "tinylab/__init__.py": "",
    "tinylab/mixers.py": """
from dataclasses import dataclass
from torch import nn
from levelfield.mixers.conv import Conv

@dataclass(frozen=True)
class Tiny(Conv):
    '''A short convolution of this lab.'''
    kernel: int = 3
    label = "tiny"

class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.map = nn.Linear(width, width)
    def forward(self, x):
        return x * self.map(x).sigmoid()

class Ahead(Gate):
    def __init__(self, width, causal):
        super().__init__(width)
    def forward(self, x):
        return x.flip(1) * self.map(x)
""",
    "tinylab/tasks.py": """
from dataclasses import dataclass
from levelfield.tasks.recall import Recall

@dataclass(frozen=True)
class Short(Recall):
    name = "short"
    keys: int = 4
    values: int = 4
    pairs: int = 4
    train: int = 40
    val: int = 10
    test: int = 10

def few(pairs=2):
    return Short(pairs=pairs)

class Lucky(Short):
    name = "lucky"
    chance = 7.0
    def build(self, sources, progress=None):
        import random
        found = super().build(sources)
        found["train"].y[0] = random.random() < 0.5
        found["val"] = found["test"]
        return found
""",
    "tinylab/probes.py": """
from dataclasses import dataclass
from levelfield.spec import Probe

@dataclass(frozen=True)
class Weights(Probe):
    '''Counts weights.'''
    name = "weights"
    def measure(self, net, run, load):
        yield {"metric": "weights", "value": float(sum(p.numel() for p in net.parameters())), "n": 1}

class Raises(Weights):
    name = "raises"
    def measure(self, net, run, load):
        return [1 / 0]
""",
    "tinylab-0.3.dist-info/METADATA": "Metadata-Version: 2.1\nName: tinylab\nVersion: 0.3\n",
    "tinylab-0.3.dist-info/entry_points.txt": """
[levelfield.mixers]
tiny = tinylab.mixers:Tiny
gate = tinylab.mixers:Gate
s4 = tinylab.mixers:Tiny
broken = tinylab.no_such_file:Tiny
[levelfield.tasks]
short = tinylab.tasks:Short
[levelfield.studies]
tinystudy = tinylab.study
demo = tinylab.study
[levelfield.probes]
weights = tinylab.probes:Weights
""",
}

FORK = {
    "forklab/__init__.py": """
from dataclasses import dataclass
from levelfield.mixers import conv

@dataclass(frozen=True)
class Conv(conv.Conv):
    "The convolution that ships, built in another way."
    def build(self, width, *, causal, layer, generator):
        return super().build(width, causal=causal, layer=layer + 1, generator=generator)
""",
    "forklab-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: forklab\nVersion: 1.0\n",
    "forklab-1.0.dist-info/entry_points.txt": "[levelfield.mixers]\nfork = forklab:Conv\n",
}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in (FILES | FORK).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    toys.write(tmp_path / "tinylab" / "study.py", runs=1)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    plugged_kinds.cache_clear()
    yield tmp_path
    plugged_kinds.cache_clear()
    for name in [each for each in sys.modules if each.partition(".")[0] in ("tinylab", "forklab")]:
        del sys.modules[name]


def test_what_a_package_adds_is_found_by_name(lab: Path) -> None:
    assert by_name.mixer("tiny").label == "tiny" and by_name.mixer("gate").opaque
    assert find_tasks("short") == [by_name.task("tinylab.tasks:Short")]
    assert by_name.probe("weights").name == "weights"
    assert "tinystudy" in listed() and Source("tinystudy").load().name == "toys"
    assert Source("tinylab.study").load().name == "toys" == Source.of("tinylab.study").load().name
    options = Options(baselines=("gate", "s4", "tinylab.mixers:Tiny(kernel=5)"))
    assert list(arms(by_name.mixer("linear"), options)) == ["linear", "gate", "s4", "tiny"]
    assert Source.of("gate").mixer == "gate" and Source.of("s4").mixer == "s4"


def test_tasks_and_baselines_of_others_stand_in_a_comparison(lab: Path) -> None:
    own = "tinylab.tasks:Short(pairs=3)"
    options = Options((own, "recall"), ("scratch",), ("tinylab.mixers:Gate",), batch=4)
    runs = Source.of("tiny", options=options).load().runs("smoke")
    assert [(run.task, run.model.label) for run in runs] == [
        (task, label)
        for task in (by_name.task(own), efforts.generated("recall", "smoke"))
        for label in ("tiny", "gate")
    ]
    with pytest.raises(UserError, match="demo says itself what it runs, so --tasks, --protocols, --baselines, --batch"):
        Source.of("demo", options=options)


def test_runs_of_a_plug_in_are_made_again_from_their_records(lab: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the broken one
        for made in (by_name.mixer("tiny"), by_name.task("short")):
            assert restore(describe(made)) == made


def test_a_probe_that_raises_is_one_sentence_with_its_line(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = Job(Source("tinystudy"), "minutes", Path("runs"), Path("data"))
    (run,) = job.source.load().runs("minutes")
    assert attempt(run, job, ()) == ("done", "")
    said = refused(capsys, "probe", "tinylab.probes:Raises", run.id, "--study", "tinystudy", "--device", "cpu")
    assert said == "levelfield: The probe raises, line 15: ZeroDivisionError: division by zero\n"


def test_a_class_of_the_name_of_one_that_ships_has_ids_of_its_own(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run of the two was taken for the other."""
    monkeypatch.setattr("levelfield.user.named.is_installed_file", lambda file: True)
    monkeypatch.setattr("levelfield.spec.own_code._OF_MODULES", {})
    ours, fork = Conv(kernel=5, hidden=64), by_name.mixer("forklab:Conv(kernel=5, hidden=64)")
    assert type(fork).__name__ == "Conv" and not fork.own_parts and digest(fork) != digest(ours)
    options = Options(("recall",), ("scratch",), ("forklab:Conv(kernel=5, hidden=64)", "attention"), seeds=1)
    runs = Source.of("conv", options=options).load().runs("smoke")
    assert [run.model.mixers for run in runs[:2]] == [(ours,), (fork,)]
    assert len({digest(run.model.mixers) for run in runs}) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the broken one
        assert [restore(describe(run)) for run in runs] == list(runs)
    named_alone = {key: value for key, value in describe(fork).items() if key not in ("module", "release")}
    assert restore(named_alone) == ours, "as it was recorded before"
    was, known = digest(fork), describe(fork)
    assert known["release"] == "forklab==1.0"
    monkeypatch.setattr("levelfield.spec.identity.release", lambda module: "forklab==1.1")
    assert digest(fork) != was, "another release may compute something else"
    assert restore(known) == fork and digest(ours) == digest(Conv(kernel=5, hidden=64))


def test_the_list_shows_them_and_a_broken_one_is_one_warning(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")
        for kind in ("mixers", "tasks", "probes", "studies"):
            main(["list", kind])
    shown = capsys.readouterr().out
    assert "tiny " in shown and "A short convolution of this lab. (tinylab 0.3)" in shown
    ours = [line.split()[0] for line in shown.splitlines() if line.endswith("(tinylab 0.3)")]
    assert ours == ["gate", "tiny", "short", "weights", "tinystudy"]
    said = [str(each.message) for each in heard]
    assert len(said) == 3, said
    assert "The plug-in broken of tinylab 0.3 is left out: " in said[0] and "no_such_file" in said[0]
    assert "The plug-in s4 of tinylab 0.3 is left out: levelfield has a mixer of that name" in said[1]
    assert "levelfield has a study of that name; name it as tinylab.study" in said[2]


def test_a_name_that_cannot_be_given_is_left_out(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was listed, and each command that it was given to looked for a module of that name."""
    entries = lab / "tinylab-0.3.dist-info/entry_points.txt"
    whole = entries.read_text()
    entries.write_text(whole.replace("[levelfield.mixers]\n", "[levelfield.mixers]\ntiny.two = tinylab.mixers:Tiny\n"))
    assert entries.read_text() != whole
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")
        main(["list", "mixers"])
    said = "The plug-in tiny.two of tinylab 0.3 is left out: a name of more than letters, digits, _ and - is taken for "
    assert any(str(each.message).startswith(said) for each in heard)
    assert "tiny.two" not in capsys.readouterr().out
    main(["doctor"])
    assert "tiny.two" in (told := capsys.readouterr().out) and "name it as tinylab.mixers:Tiny" in told


def test_naming_a_broken_one_or_a_near_one_is_a_sentence(lab: Path) -> None:
    with pytest.raises(UserError, match=r"plug-in broken of tinylab 0\.3 cannot be used: There is no module"):
        by_name.mixer("broken")
    with pytest.raises(UserError, match="no task 'shorts': did you mean 'short'"):
        by_name.task("shorts")
    entries = lab / "tinylab-0.3.dist-info/entry_points.txt"
    more = "[levelfield.studies]\nempty = tinylab.mixers\n"
    entries.write_text(entries.read_text().replace("[levelfield.studies]\n", more))
    said = r"plug-in empty of tinylab 0\.3 cannot be used: tinylab\.mixers defines no study.* tinylab\.mixers:NAME"
    with pytest.raises(UserError, match=said):
        Source("empty").load()
    with pytest.raises(UserError, match=r"^tinylab\.mixers defines no study"):
        Source("tinylab.mixers").load()


def test_check_says_rule_by_rule_what_holds(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("tiny", "short", "weights", "tinystudy", "tinylab.tasks:few(pairs=3)"):
        main(["check", name])
        shown = capsys.readouterr().out
        assert "  ok     " in shown and "FAULT" not in shown and shown.endswith("All of it holds.\n")
    with pytest.raises(SystemExit) as stop:
        main(["check", "tinylab.mixers:Ahead"])
    shown = capsys.readouterr().out
    assert stop.value.code == 1 and "FAULT  no step sees a later one: ahead is built as causal, but " in shown
    assert "FAULT  padding is not seen: ahead " in shown and "  ok     sequences of a batch do not see" in shown
    with pytest.raises(SystemExit):
        main(["check", "tinylab.tasks:Lucky"])
    faults = [line for line in capsys.readouterr().out.splitlines() if "FAULT  " in line]
    assert "guessing scores 7.0" in faults[0] and "10 examples of val are in test too" in "".join(faults)


def test_an_unknown_name_is_refused(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["check", "tinystudi"])
    assert stop.value.code == 2 and "did you mean 'tinystudy'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, near",
    [("tinylab.tasks:Shirt", "Short"), ("tinylab.probes:Weight", "Weights"), ("tinylab.mixers:Gat", "Gate")],
)
def test_a_misspelt_name_in_a_module_is_compared_with_whatever_it_defines(
    lab: Path, capsys: pytest.CaptureFixture[str], name: str, near: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["check", name])
    assert stop.value.code == 2 and f"did you mean '{near}'?" in capsys.readouterr().err


def test_doctor_loads_plug_ins_and_tells_the_broken_ones(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = lab / "tinylab-0.3.dist-info/entry_points.txt"
    more = "[levelfield.studies]\nempty = tinylab.mixers\n"
    entries.write_text(entries.read_text().replace("[levelfield.studies]\n", more))
    (lab / "tinylab/probes.py").write_text("raise SystemExit('no licence')\n")
    main(["doctor"])
    shown = capsys.readouterr().out.splitlines()
    told = {line.split()[0]: line for line in shown[shown.index("plug-ins:") + 1 :] if line.startswith("  ")}
    assert {name for name, line in told.items() if "BROKEN" in line} == {"broken", "empty", "weights"}
    assert "BROKEN: There is no module tinylab.no_such_file" in told["broken"]
    assert "no licence" in told["weights"] or "sys.exit" in told["weights"]
    assert told["s4"].endswith("named as one of levelfield's own mixers: name it as tinylab.mixers:Tiny")
    assert told["tiny"].endswith("tinylab.mixers:Tiny of tinylab 0.3")


def test_what_a_file_prints_stays_out_of_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that a user's file printed stood before the JSON, which no program could read then."""
    monkeypatch.chdir(tmp_path)
    loud = "print('loading')\nfrom torch import nn\n\n"
    loud += "def made(width):\n    print('made')\n    return nn.Linear(width, width)\n"
    (tmp_path / "loud.py").write_text(loud)
    main(["plan", "loud.py:made", "--effort", "smoke", "--json"])
    shown = capsys.readouterr()
    assert json.loads(shown.out) and "loading" in shown.err and "made" in shown.err
