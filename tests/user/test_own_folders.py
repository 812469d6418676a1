"""Hugging Face datasets in folders as tasks: what `datasets` saves and what the hub has are read as they were written,
their splits stay, and a folder of which a part is missing is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from levelfield import OwnData
from levelfield.cli.app import main
from levelfield.spec import Label, Task, UserError, digest
from levelfield.user import own_files

NAMES = ("neg", "neutral", "pos")
FEATURES = {"text": {"dtype": "string", "_type": "Value"}, "label": {"names": NAMES, "_type": "ClassLabel"}}
TEXT = {"text": "text", "label": "label"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Class 1 is in no row, though it has a name."""
    return [{"text": f"text {i}", "label": i % 2 * 2} for i in numbers]


def parquet(path: Path, given: list[dict[str, Any]], features: Mapping[str, Any] | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".rows")
    source.write_text(json.dumps(given))
    kept = "".join(f", KV_METADATA {{huggingface: '{json.dumps({'info': {'features': f}})}'}}" for f in [features] if f)
    duckdb.sql(f"COPY (SELECT * FROM read_json('{source}')) TO '{path}' (FORMAT parquet{kept})")
    source.unlink()


def saved(folder: Path, *shards: list[dict[str, Any]]) -> None:
    """What Dataset.save_to_disk of datasets 5.2 leaves in a folder."""
    pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'levelfield[data]'")
    folder.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([("text", pa.string()), ("label", pa.int64())])
    schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": FEATURES}})})
    names = [f"data-{i:05}-of-{len(shards):05}.arrow" for i in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
            stream.write_table(pa.Table.from_pylist(shard, schema=schema))
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "1", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))


def texts(task: Task, split: Any) -> dict[str, float]:
    found = task.build(None)[split]
    return {bytes(found.sequence(i)).decode(): float(found.y[i]) for i in range(len(found))}


def expected(numbers: Iterable[int]) -> dict[str, float]:
    return {row["text"]: float(row["label"]) for row in rows(numbers)}


@pytest.mark.peers
def test_a_saved_dict_of_splits_is_read_as_it_was_saved(here: Path) -> None:
    saved(here / "imdb" / "train", rows(range(20)), rows(range(20, 30)))
    saved(here / "imdb" / "test", rows(range(30, 40)))
    saved(here / "imdb" / "unsupervised", rows(range(40, 50)))
    (here / "imdb" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test", "unsupervised"]}))
    task = OwnData("imdb", **TEXT)
    with pytest.warns(UserWarning, match="left out: unsupervised"):
        assert texts(task, "test") == expected(range(30, 40))
        assert texts(task, "train") | texts(task, "val") == expected(range(30)), "val is carved from train"
        assert len(texts(task, "val")) == 3
    assert (task.classes, task.output) == (NAMES, Label(3)), "names and numbers are those of the dataset"


@pytest.mark.peers
def test_one_saved_split_is_carved_and_its_content_is_the_identity(here: Path) -> None:
    saved(here / "a", rows(range(30)))
    saved(here / "b", rows(range(30)))
    state = json.loads((here / "b" / "state.json").read_text()) | {"_fingerprint": "2"}
    (here / "b" / "state.json").write_text(json.dumps(state))
    task = OwnData("a", **TEXT)
    assert digest(task) == digest(OwnData("b", **TEXT)), "a fingerprint of datasets is no content"
    splits = task.build(None)
    assert [len(splits[split]) for split in ("train", "val", "test")] == [21, 3, 6]
    assert texts(OwnData("a/data-00000-of-00001.arrow", **TEXT), "test") == texts(task, "test")


def test_hidden_labels_of_a_test_split_are_none(here: Path) -> None:
    parquet(here / "cola" / "data" / "train-00000-of-00001.parquet", rows(range(30)), FEATURES)
    hidden = [row | {"label": -1} for row in rows(range(30, 40))]
    parquet(here / "cola" / "data" / "test-00000-of-00001.parquet", hidden, FEATURES)
    task = OwnData("cola", **TEXT)
    assert task.classes == NAMES and task.notes[0] == "10 of 40 rows without input or label were left out."
    with pytest.warns(UserWarning):
        assert set(texts(task, "test")) < set(expected(range(30)))


@pytest.mark.parametrize(
    "layout", ["data/{split}-{i:05}-of-00002", "plain/{split}-{i:05}-of-00002", "all/{split}/{i:04}"]
)
def test_the_layouts_of_the_hub(here: Path, layout: str) -> None:
    for split, start in (("train", 0), ("validation", 20), ("test", 40)):
        for i in range(2):
            name = layout.format(split=split, i=i) + ".parquet"
            parquet(here / "reviews" / name, rows(range(start + 10 * i, start + 10 * i + 10)))
    (here / "reviews" / "README.md").write_text("---\nlicense: mit\n---\n")
    task = OwnData("reviews", **TEXT)
    for split, start in (("train", 0), ("val", 20), ("test", 40)):
        found = texts(task, split)
        assert found == {text: label / 2 for text, label in expected(range(start, start + 20)).items()}, split


def test_a_second_file_for_val_is_another_task_than_one_for_test(here: Path) -> None:
    for folder, second in (("a", "val"), ("b", "test")):
        for split, numbers in (("train", range(20)), (second, range(20, 30))):
            parquet(here / folder / "data" / f"{split}-00000-of-00001.parquet", rows(numbers))
    assert digest(OwnData("a", **TEXT)) != digest(OwnData("b", **TEXT))


def test_folders_that_cannot_be_used_are_refused_in_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet(here / "part" / "train-00000-of-00003.parquet", rows(range(9)))
    for language in ("de", "fr"):
        parquet(here / "both" / language / "train-00000-of-00001.parquet", rows(range(9)))
    parquet(here / "twice" / "data" / "dev-00000-of-00001.parquet", rows(range(9)))
    parquet(here / "twice" / "data" / "validation-00000-of-00001.parquet", rows(range(9)))
    parquet(here / "unknown" / "left-00000-of-00001.parquet", rows(range(9)))
    parquet(here / "unknown" / "right-00000-of-00001.parquet", rows(range(9)))
    (here / "pointer").mkdir()
    (here / "pointer" / "train.parquet").write_bytes(own_files.LFS + b"/spec/v1\noid sha256:0\n")
    for name, state in (("old", {"_indices_data_files": [{"filename": "i.arrow"}]}), ("torn", {"_data_files": None})):
        (here / name).mkdir()
        (here / name / "state.json").write_text(json.dumps(state))
    (here / "moved").mkdir()
    (here / "moved" / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    for name, sentence in {
        "part": "lacks 2 of the 3 files of the split train", "both": "several configurations (de, fr)",
        "twice": "both of which are val", "unknown": "call one of them train", "pointer": "git lfs pull",
        "old": "old version of datasets", "torn": "names no files", "moved": "data.arrow, which is not there",
    }.items():  # fmt: skip
        with pytest.raises(SystemExit) as end:
            main(["data", "prepare", name, "--text", "text", "--label", "label"])
        said = capsys.readouterr().err
        assert end.value.code == 2 and sentence in said and said.count("\n") == 1, said
    assert own_files.is_data("x.arrow")


def test_an_arrow_file_that_is_cut_off_is_said_to_be_one(here: Path) -> None:
    saved(here / "one", rows(range(30)))
    (file,) = (here / "one").glob("*.arrow")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(UserError, match="is no Arrow file that can be read"):
        OwnData("one", **TEXT).input  # noqa: B018  # reads the file


def test_a_split_without_the_column_of_the_input_is_refused(here: Path) -> None:
    """It was left out, and a share of the training rows took its place."""
    parquet(here / "a" / "train.parquet", rows(range(30)))
    parquet(here / "a" / "test.parquet", [{"body": row["text"], "label": row["label"]} for row in rows(range(30, 40))])
    with pytest.raises(UserError, match="The rows of the split test have no column 'text'"):
        OwnData("a", **TEXT).input  # noqa: B018  # reads the files


def test_arrow_without_pyarrow_says_what_to_install(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "a.arrow").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"levelfield\[data\]"):
        OwnData("a.arrow", **TEXT).input  # noqa: B018  # reads the file


def test_commands_take_the_folder_of_a_dataset(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet(here / "reviews" / "data" / "train-00000-of-00001.parquet", rows(range(30)))
    parquet(here / "reviews" / "data" / "test-00000-of-00001.parquet", rows(range(30, 40)))
    own = ["--own", "reviews", "--text", "text", "--label", "label", "--effort", "smoke"]
    main(["plan", "linear", *own, "--protocols", "scratch", "--baselines", "conv", "--json"])
    assert all("own_reviews" in run["id"] for run in json.loads(capsys.readouterr().out)["runs"])
    main(["data", "prepare", "reviews", "--text", "text", "--label", "label"])
    assert "own_reviews" in capsys.readouterr().out, "a folder's name needs no slash where columns are named"
