"""The Croissant file of prepared data says what the arrays are, and the standard's own reader takes it without a word.

That reader, mlcroissant, brings 250 MB of packages and so is not among those of the tests. Where it is missing, what it
asks for is checked by hand.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_data import Parity

from levelfield import tasks
from levelfield.cli.app import main
from levelfield.data import croissant, prepared
from levelfield.spec import UserError
from levelfield.tasks.listops import ListOps

TASK = ListOps(train=12, val=4, test=4, minimum=10, length=40, seed=7)
WORD = "listops(train=12,val=4,test=4,minimum=10,length=40,seed=7)"
URL = "https://data.example/listops"
REQUIRED = ("@context", "@type", "conformsTo", "name", "description", "license", "url", "creator", "datePublished")
"""What the standard asks of every dataset."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared folder with its description, both made by the command line."""
    root = tmp_path_factory.mktemp("data")
    main(["data", "prepare", WORD, "--data", str(root)])
    main(["data", "croissant", WORD, "--data", str(root), "--url", URL, "--published", "2026-11-23"])
    return prepared.folder(TASK, root)


def described(at: Path) -> dict[str, Any]:
    return json.loads((at / "croissant.json").read_text())


def rows(about: dict[str, Any], name: str) -> list[dict[str, Any]]:
    (table,) = [each for each in about["recordSet"] if each["@id"] == name]
    fields = {field["@id"] for field in table["field"]}
    assert all(row.keys() == fields for row in table["data"])
    return [{key.partition("/")[2]: value for key, value in row.items()} for row in table["data"]]


def test_it_says_what_the_arrays_are(kept: Path) -> None:
    about = described(kept)
    assert all(about[key] for key in REQUIRED) and about["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    assert about["license"].endswith("/Apache-2.0") and about["url"] == URL
    assert about["datePublished"] == "2026-11-23" and about["creator"]["name"] == "levelfield"
    files = {file["@id"]: file for file in about["distribution"]}
    assert files.keys() == {path.name for path in kept.glob("*.npy")}
    for name, file in files.items():
        content = (kept / name).read_bytes()
        assert file["sha256"] == hashlib.sha256(content).hexdigest() and file["contentSize"] == f"{len(content)} B"
    arrays = {each["field"]["source"]["fileObject"]["@id"]: each for each in about["recordSet"] if "data" not in each}
    assert arrays.keys() == files.keys()
    for name, each in arrays.items():
        array = np.load(kept / name)
        assert each["field"]["arrayShape"] == ",".join(map(str, array.shape))
        assert each["field"]["dataType"].lower() in (f"cr:{array.dtype}", "sc:text")
        assert each["description"].startswith(f"{name.split('.')[0]}: ")
    ids = [*files, *(each["@id"] for each in about["recordSet"])]
    assert len(ids) == len(set(ids))


def test_splits_and_settings_are_rows(kept: Path) -> None:
    about = described(kept)
    assert [(row["name"], row["kind"], row["examples"]) for row in rows(about, "splits")] == [
        ("train", "cr:TrainingSplit", 12),
        ("val", "cr:ValidationSplit", 4),
        ("test", "cr:TestSplit", 4),
    ]
    settings = {row["name"]: json.loads(row["value"]) for row in rows(about, "settings")}
    assert (settings["kind"], settings["version"], settings["seed"]) == ("ListOps", TASK.version, 7)
    again = replace(ListOps(), **{key: settings[key] for key in ("train", "val", "test", "minimum", "length", "seed")})
    assert prepared.folder(again, kept.parent) == kept and about["name"] == kept.name


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")  # of the packages that the reader reads JSON-LD with
def test_the_standards_own_reader_takes_it(kept: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed: pip install mlcroissant")
    dataset = reader.Dataset(kept / "croissant.json")
    issues = dataset.metadata.ctx.issues
    assert not issues.errors and not issues.warnings and caplog.messages == []
    assert [row["splits/examples"] for row in dataset.records("splits")] == [12, 4, 4]
    assert {file.id: file.sha256 for file in dataset.metadata.file_objects} == {
        f"{name}.npy": array["sha256"] for name, array in prepared.manifest(kept)["arrays"].items()
    }


def test_types_have_the_standards_words() -> None:
    said = {"uint8": "cr:UInt8", "int64": "cr:Int64", "float32": "cr:Float32", "bool": "sc:Boolean", "<U5": "sc:Text"}
    assert {name: croissant.data_type(np.dtype(name)) for name in said} == said


def test_official_data_state_a_licence_and_a_task_of_ones_own_is_not_licensed_by_us(tmp_path: Path) -> None:
    assert [name for name in tasks.names() if (task := tasks.find(name)).archives and not task.licence] == []
    own = croissant.metadata(Parity(), prepared.prepare(Parity(), tmp_path))
    assert own["license"] == "not stated" and not {"creator", "datePublished"} & own.keys()


def test_data_of_official_files_are_not_created_by_us_and_copies_are_described_alike(
    kept: Path, tmp_path: Path
) -> None:
    copy = tmp_path / kept.name
    shutil.copytree(kept, copy, copy_function=shutil.copyfile)
    os.utime(copy / prepared.MANIFEST, (0, 0))
    about = croissant.metadata(TASK, copy)
    assert about == croissant.metadata(TASK, kept) and about["creator"]["name"] == "levelfield"
    manifest = prepared.manifest(copy) | {"files": "official"}
    (copy / prepared.MANIFEST).write_text(json.dumps(manifest))
    assert "creator" not in croissant.metadata(TASK, copy)
    with pytest.raises(UserError, match="--published soon is no date: give one such as 2026-11-23"):
        croissant.metadata(TASK, copy, croissant.Publication(date="soon"))


def test_data_that_are_not_there_or_changed_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = prepared.prepare(TASK, tmp_path)
    for root, sentence in (
        (
            tmp_path / "none",
            f"listops is not prepared in {tmp_path / 'none'}: start with `levelfield data prepare {shlex.quote(WORD)} "
            f"--data {tmp_path / 'none'}`",
        ),
        (tmp_path, "has changed since it was made"),
    ):
        if root == tmp_path:
            (at / "val.y.npy").write_bytes((at / "test.y.npy").read_bytes()[:-1] + b"\x05")
        with pytest.raises(SystemExit) as stop:
            main(["data", "croissant", WORD, "--data", str(root)])
        assert stop.value.code == 2 and sentence in capsys.readouterr().err
    assert not (at / croissant.FILE).exists()
