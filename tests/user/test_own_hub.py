"""Datasets of the Hugging Face hub by their names: what is downloaded, what is recorded, and every way to fail in one
sentence; by a hub of this process, and by the real package against a local server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fixtures_hub import COMMIT, serving
from repository import ROOT

from levelfield import OwnData, api
from levelfield.cli.app import main
from levelfield.spec import UserError, digest
from levelfield.user import own_files, own_hub

TEXT: dict[str, Any] = {"text": "text", "label": "label"}
FLAGS = ["--text", "text", "--label", "label"]


def rows(first: int, last: int) -> bytes:
    return b"text,label\n" + b"".join(b"film %d,%s\n" % (i, b"pos" if i % 2 else b"neg") for i in range(first, last))


REVIEWS = {
    ".gitattributes": b"",
    "README.md": b"---\nlicense: mit\n---\n",
    "data/train-00000-of-00001.csv": rows(0, 40),
    "data/test-00000-of-00001.csv": rows(40, 60),
    "data/unsupervised-00000-of-00001.csv": rows(60, 90),
    "weights.bin": b"0" * 100,
}
DATASETS: Mapping[str, Mapping[str, bytes]] = {
    "someone/reviews": REVIEWS,
    "someone/many": {f"{part}/{s}-00000-of-00001.csv": rows(0, 30) for part in ("de", "fr") for s in ("train", "test")},
    "someone/below": {f"data/{part}/train-00000-of-00001.csv": rows(0, 30) for part in ("de", "fr")},
    "someone/one": {"README.md": b"", "reviews.csv": rows(0, 30)},
    "someone/script": {"README.md": b"", "script.py": b"raise SystemExit", "a.jpg": b""},
    "someone/outside": {"../train.csv": b"", "train.csv": rows(0, 30)},
}
SENTENCES = {
    "someone/many": "someone/many has several configurations (de, fr): give the folder of one of them, such as "
    "someone/many/fr.",
    "someone/many/es": "The dataset someone/many has no es: it has de, fr.",
    "someone/one": "give the file itself, such as someone/one/reviews.csv.",
    "someone/script": "no files that are read here (.csv, .tsv, .jsonl, .ndjson, .parquet, .arrow), only .jpg, .py, "
    "and a script is not run: try someone/script@refs/convert/parquet",
    "someone/nothing": "the Hugging Face hub has no dataset someone/nothing, or does not show it to you: check the "
    "name, and log in with `hf auth login` if it is private.",
    "someone/hidden": "the Hugging Face hub has no dataset someone/hidden, or does not show it to you",
    "someone/gated": "someone/gated is gated: ask for access on its page on the Hugging Face hub, then log in with",
    "someone/reviews@v9": "someone/reviews has no revision v9: give a branch, tag or commit after the @.",
    "some--one/a": "the Hugging Face hub gives no dataset such a name: give the path of your data.",
}


class FakeHub:
    """The package, as far as it is called: every file that it has not yet is written and noted as downloaded."""

    def __init__(self, at: Path) -> None:
        self.at, self.downloaded = at, list[str]()
        kinds = ("GatedRepo", "RevisionNotFound", "RepositoryNotFound")
        kinds += ("LocalEntryNotFound", "HFValidation", "HfHubHTTP")
        self.errors = SimpleNamespace(**{f"{kind}Error": type(kind, (OSError,), {}) for kind in kinds})
        bars = {f"{word}_progress_bars": lambda: None for word in ("disable", "enable")}
        self.utils = SimpleNamespace(are_progress_bars_disabled=lambda: False, **bars)

    def snapshot_download(self, repo_id: str, repo_type: str, revision: str | None, allow_patterns: list[str]) -> str:
        assert repo_type == "dataset"
        if repo_id not in DATASETS:
            raise self.errors.LocalEntryNotFoundError("offline")
        folder = self.at / repo_id / COMMIT
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in DATASETS[repo_id].items():
            if any(fnmatch(name, pattern) for pattern in allow_patterns) and not (folder / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
                self.downloaded.append(name)
        return str(folder)

    def get_cached_repo_tree(self, repo_id: str, repo_type: str, revision: str) -> list[SimpleNamespace]:
        assert (repo_type, revision) == ("dataset", COMMIT)
        return [SimpleNamespace(path=name) for name in DATASETS[repo_id]]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    made = FakeHub(tmp_path / "cache")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setitem(sys.modules, "huggingface_hub", made)
    for part in ("errors", "utils"):
        monkeypatch.setitem(sys.modules, f"huggingface_hub.{part}", getattr(made, part))
    own_hub.dataset.cache_clear()
    return made


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a/b", ("a/b", "", "")),
        ("a-1/b.c_d", ("a-1/b.c_d", "", "")),
        ("a/b/c/d.csv", ("a/b", "c/d.csv", "")),
        ("a/b/c@refs/convert/parquet", ("a/b", "c", "refs/convert/parquet")),
        *((text, None) for text in ("a", "./a/b", "../a/b", "/a/b", "~/a/b", "a/b.csv", "a/b.py", "a/b/c.py")),
        *((text, None) for text in ("a/b/c.py:Task", "a/b/c(d=1)", "reach(range=64)", "a/b c", "a//b", "tests/user")),
    ],
)
def test_names_of_the_hub_are_told_from_paths(
    monkeypatch: pytest.MonkeyPatch, text: str, expected: tuple[str, str, str] | None
) -> None:
    monkeypatch.chdir(ROOT)
    assert own_files.on_hub(text) == expected


def test_a_dataset_by_its_name_is_the_task_of_its_files_and_names_the_commit(hub: FakeHub) -> None:
    task = OwnData("someone/reviews", **TEXT)
    with pytest.warns(UserWarning, match="none of train, val and test were left out: unsupervised"):
        splits = task.build(None)
    assert {name: len(split) for name, split in splits.items()} == {"train": 36, "val": 4, "test": 20}
    assert hub.downloaded == [*list(REVIEWS)[:4]], "neither the split that is not read nor what is no table"
    copy = Path("copy")
    for name, content in REVIEWS.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(content)
    local, named = OwnData("copy", **TEXT), task.pinned()
    assert digest(task) == digest(named) == digest(local) and local.pinned() == local
    assert named.path == f"someone/reviews@{COMMIT}" and (named.name, local.name) == ("own_reviews", "own_copy")
    assert named.source == f"someone/reviews of the Hugging Face hub, revision {COMMIT}"


def test_only_the_configuration_that_is_named_is_downloaded(hub: FakeHub) -> None:
    with pytest.raises(UserError, match="several configurations"):
        OwnData("someone/many", **TEXT).input  # noqa: B018  # asks the hub
    assert hub.downloaded == []
    assert OwnData("someone/many/fr", **TEXT).input and OwnData("someone/below/de", **TEXT).pinned().max_length
    assert hub.downloaded == [*list(DATASETS["someone/many"])[2:], "data/de/train-00000-of-00001.csv"]
    assert OwnData("someone/many/fr", **TEXT).name == "own_many_fr"
    assert OwnData("someone/outside", **TEXT).reads == (hub.at / "someone/outside" / COMMIT / "train.csv",)


@pytest.mark.usefixtures("hub")
def test_a_name_becomes_a_task_for_commands_and_in_python(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(UserWarning, match="unsupervised"):
        main(["data", "prepare", "someone/reviews", *FLAGS])
    (manifest,) = Path("data").glob("own_reviews-*/manifest.json")
    assert json.loads(manifest.read_text())["settings"]["path"] == f"someone/reviews@{COMMIT}"
    own = ["--own", "someone/reviews", *FLAGS, "--effort", "smoke", "--protocols", "scratch", "--baselines", "conv"]
    main(["plan", "linear", *own, "--json"])
    assert "own_reviews" in capsys.readouterr().out

    def measure(task: OwnData, *others: object) -> None:
        raise UserError(f"It is of {task.path}.")

    monkeypatch.setattr(api.auditing, "measure", measure)
    with pytest.raises(UserError, match=f"It is of someone/reviews@{COMMIT}"):
        api.audit(OwnData("someone/reviews", **TEXT), effort="smoke")
    with pytest.raises(UserError, match=r"give the path of your data, or OwnData\('someone/reviews', text=\.\.\., "):
        api.audit("someone/reviews")


def refused(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capsys.readouterr().err
    assert end.value.code == 2 and said.count("\n") == 1
    return said


@pytest.mark.usefixtures("hub")
def test_what_is_not_to_be_had_is_said_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("someone/many", "someone/many/es", "someone/one", "someone/script"):
        assert SENTENCES[name] in refused(capsys, ["audit", name, *FLAGS])
    assert "it has text, label" in refused(capsys, ["audit", "someone/reviews"])
    assert "cannot be reached for the dataset someone/else" in refused(capsys, ["audit", "someone/else", *FLAGS])


def test_without_the_package_the_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for words in (["data", "prepare", "owner/set"], ["plan", "linear", "--own", "owner/set", *FLAGS]):
        said = refused(capsys, words)
        assert "no file or folder owner/set: give the path of your data, or, to download the dataset owner/set" in said
        assert said.endswith("install its package: pip install 'levelfield[hub]'.\n")


CALLS = """
import json, sys
from contextlib import redirect_stderr
from io import StringIO
from levelfield.cli.app import main
for words in json.loads(sys.argv[1]):
    code, said = 0, StringIO()
    with redirect_stderr(said):
        try:
            main(words)
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, said.getvalue()]))
"""


def called(folder: Path, environment: Mapping[str, str], *commands: list[str]) -> list[tuple[int, str]]:
    """What commands of one process end with, and say on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", CALLS, json.dumps(commands)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HOME": str(folder / "hf"), **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return [(code, said) for code, said in map(json.loads, (li for li in done.stdout.splitlines() if li[:1] == "["))]


@pytest.mark.peers
def test_the_real_package_downloads_once_and_says_what_it_cannot(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed: pip install 'levelfield[hub]'")
    prepare = ["data", "prepare", "someone/reviews", *FLAGS]
    with serving(DATASETS) as server:
        found = called(tmp_path, {"HF_ENDPOINT": server.url}, prepare, *(["audit", each, *FLAGS] for each in SENTENCES))
        asked = [each.rpartition("/")[2] for each in server.asked if "/someone/reviews/resolve/" in each]
    assert found[0][0] == 0
    for (code, said), sentence in zip(found[1:], SENTENCES.values(), strict=True):
        assert code == 2 and sentence in said and said.count("\n") == 1, said
    assert set(asked) == {Path(name).name for name in list(REVIEWS)[:4]}
    (made,) = (tmp_path / "data").glob("own_reviews-*")
    assert COMMIT in (made / "manifest.json").read_text()
    shutil.rmtree(tmp_path / "data")
    unreachable = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    (code, _), (none, said) = called(tmp_path, unreachable, prepare, ["audit", "someone/else", *FLAGS])
    assert code == 0 and (made / "manifest.json").is_file(), "the cache serves where no hub is reached"
    assert none == 2 and "cannot be reached for the dataset someone/else" in said
