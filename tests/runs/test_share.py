"""Exported runs: read back byte for byte, refused where they are not whole, and read with torch alone."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toys
from repository import ROOT
from safetensors.torch import load_file, save_file
from tiny import MODEL, FirstSymbol, recipe

from levelfield import protocols
from levelfield.cli.app import main
from levelfield.engine import restore
from levelfield.engine.find import Source, choose, find_run
from levelfield.engine.training import Job, attempt
from levelfield.files import read_json, write_json
from levelfield.presets import by_name, efforts
from levelfield.run import execute
from levelfield.runs import claims, load_weights, share, share_card, store
from levelfield.spec import Run, UserError, describe
from levelfield.spec.contents import checksum
from levelfield.spec.row_schema import row_schema

PYTHON = {"string": str, "integer": int, "number": (int, float)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a complete toy run."""
    folder = tmp_path_factory.mktemp("share")
    toys.write(folder / "toys.py", runs=1)
    job = Job(Source(str(folder / "toys.py")), "minutes", folder / "runs", folder / "data")
    (made,) = choose(job.source.load(), "minutes")
    assert attempt(made, job, ()) == ("done", "")
    return store.directory(job.out, made)


@pytest.fixture
def packed(run: Path, tmp_path: Path) -> Path:
    share.pack(run, tmp_path / "packed")
    return tmp_path / "packed"


def test_a_run_comes_back_byte_for_byte(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["export", run.name, "--runs-dir", str(run.parent), "--folder", str(tmp_path / "out")])
    assert f"levelfield import {tmp_path / 'out'}" in capsys.readouterr().out
    main(["import", str(tmp_path / "out"), "--runs-dir", str(tmp_path / "runs")])
    again = tmp_path / "runs" / run.name
    names = {path.name for path in run.iterdir() if share.FILE.fullmatch(path.name)}
    assert names >= {"weights.safetensors", "rows.jsonl", "spec.json", "ledger.json", "log.jsonl", "done.json"}
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {n: (run / n).read_bytes() for n in names}
    assert store.checked_weights(again) and store.run_rows(again / "rows.jsonl")
    assert share.unpack(tmp_path / "out", tmp_path / "runs") == again, "a second time nothing is to be done"


def test_a_run_that_only_evaluates_has_no_curve_and_comes_back(tmp_path: Path) -> None:
    trained = Run(FirstSymbol(), MODEL, protocols.scratch(recipe(1)), 0)
    execute(trained, store.directory(tmp_path, trained), tmp_path / "data", "cpu")
    given = protocols.pretrained(store.directory(tmp_path, trained) / store.WEIGHTS)
    where = store.directory(tmp_path, made := replace(trained, protocol=given))
    execute(made, where, tmp_path / "data", "cpu")
    assert not (where / store.LOG).exists()
    share.pack(where, tmp_path / "packed")
    again = share.unpack(tmp_path / "packed", tmp_path / "runs")
    assert (again / store.ROWS).read_bytes() == (where / store.ROWS).read_bytes()


def test_a_run_that_is_not_there_is_called_so_with_the_nearest_one(run: Path) -> None:
    with pytest.raises(UserError, match=f"There is no run '{run.name}s' in .*did you mean '{run.name}'"):
        share.pack(run.with_name(f"{run.name}s"), run.parent / "out")


def test_a_run_is_named_by_its_path_too(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["export", f"{run}/"])
    folder = Path("exported") / run.name
    assert share.is_packed(folder)
    for words, sentence in {
        ("import", "exported"): f"exported is no exported run: name one in it, such as {folder}.",
        ("export", str(run), "--folder", str(folder / "load.py")): "load.py is a file",
        ("import", str(folder / "load.py")): f"load.py is a part of an exported run: name its folder, {folder}.",
        ("import", f"{folder}/levelfield-run.json", "--model", "m"): "is a part of an exported run",
        ("export", f"{run.parent}/nothing"): "There is no run 'nothing'",
    }.items():
        with pytest.raises(SystemExit) as stop:
            main(list(words))
        assert stop.value.code == 2 and sentence in capsys.readouterr().err


def test_a_run_of_a_layer_of_others_says_what_to_name(tmp_path: Path) -> None:
    model = replace(efforts.model("recall", efforts.ATTENTION, "smoke"), mixers=(by_name.mixer("torch.nn:GRU"),))
    (protocol,) = efforts.protocols("recall", "smoke", ("scratch",))
    made = Run(efforts.generated("recall", "smoke"), model, protocol, 0)
    write_json(store.directory(tmp_path, made) / store.SPEC, describe(made))
    with pytest.raises(UserError, match=r"is made of torch\.nn:GRU.*such as --study torch\.nn:GRU\."):
        find_run(made.id, tmp_path)
    assert find_run(made.id, tmp_path, "torch.nn:GRU").id == made.id


def test_the_loader_needs_torch_alone(packed: Path) -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); from load import weights; found = weights(); "
    code += "assert not {'levelfield', 'safetensors'} & set(sys.modules); print(sorted(found))"
    done = subprocess.run([sys.executable, "-I", "-c", code, str(packed)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(sorted(load_file(packed / "weights.safetensors")))


def test_the_loader_reads_what_safetensors_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    assert {"complex64", "uint16", "uint64", "float8_e4m3fn", "float8_e5m2"} <= {*load_weights.KINDS.values()}
    kinds = [getattr(torch, name) for name in load_weights.KINDS.values()]
    given = {str(kind): torch.arange(6).reshape(2, 3).to(kind) for kind in kinds}
    given |= {"none": torch.empty(0, 4), "one": torch.tensor(2.5)}
    save_file(given, tmp_path / "weights.safetensors", metadata={"format": "pt"})
    monkeypatch.setattr(load_weights, "__file__", str(tmp_path / "load.py"))
    found = load_weights.weights()
    assert found.keys() == given.keys()
    assert all(torch.equal(found[k], v) and found[k].dtype == v.dtype for k, v in given.items())


def test_the_card_names_no_file_that_is_not_there(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / run.name))
    assert "`ledger.json` the whole cost, `log.jsonl` the curve of training, `scores.npy` the" in share_card.card(
        copy, "x"
    )
    (copy / store.LOG).unlink()
    assert "`ledger.json` the whole cost, `scores.npy` the score of each test example." in share_card.card(copy, "x")


def test_the_card_says_scores_cost_and_how_to_read_it_back(run: Path, packed: Path) -> None:
    card = (packed / "README.md").read_text()
    rows = [row for row in store.run_rows(run / "rows.jsonl") if row.get("split") == "test"]
    assert rows
    for row in rows:
        of = "this model" if row.get("protocol") != "none" else row.get("model", "").replace("_", " ")
        assert f"| {of} | test | accuracy | {row['value']:.4g} | {row['n']} |" in card
    assert "| label prior | test |" in card
    assert "levelfield import" in card and "| parameters |" in card


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda at, m: (at / "rows.jsonl").write_text("{}\n"), "rows.jsonl is missing or has changed"),
        (lambda at, m: (at / "weights.safetensors").unlink(), "weights.safetensors is missing or has changed"),
        (lambda at, m: m.update(run="../out"), "the name of its run cannot be one"),
        (lambda at, m: m["files"].update({"../x.jsonl": ""}), "it lists files that no run has"),
        (lambda at, m: m["files"].pop("spec.json"), "it lists no spec.json"),
        (lambda at, m: m.update(format=9), "its format is 9"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(packed: Path, tmp_path: Path, change: Any, sentence: str) -> None:
    manifest = json.loads((packed / share.MANIFEST).read_text())
    change(packed, manifest)
    (packed / share.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=sentence):
        share.unpack(packed, tmp_path / "runs")
    assert not [path for path in (tmp_path / "runs").glob("*") if path.is_dir()]


def test_what_is_there_is_not_overwritten(run: Path, packed: Path, tmp_path: Path) -> None:
    where = share.unpack(packed, tmp_path / "runs")
    (where / "rows.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="is there with other rows"):
        share.unpack(packed, tmp_path / "runs")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match="holds other things"):
        share.pack(run, tmp_path / "mine")
    with pytest.raises(UserError, match="There is no run 'nothing'"):
        share.pack(run.parent / "nothing", tmp_path / "other")
    (run.parent / "begun").mkdir()
    (run.parent / "begun" / "spec.json").write_text("{}")
    with pytest.raises(UserError, match="is not complete"):
        share.pack(run.parent / "begun", tmp_path / "other")


def test_it_is_pushed_only_where_the_hubs_package_is(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["export", run.name, "--runs-dir", str(run.parent), "--folder", str(tmp_path / "out"), "--push", "me/mine"]
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2 and "pip install 'levelfield[hub]'" in capsys.readouterr().err
    asked: list[Any] = []

    class Hub:
        def create_repo(self, name: str, exist_ok: bool) -> None:
            asked.append(name)

        def upload_folder(self, repo_id: str, folder_path: str) -> None:
            asked.append((repo_id, folder_path))

    monkeypatch.setitem(sys.modules, "huggingface_hub", types.SimpleNamespace(HfApi=Hub))
    main(words)
    assert asked == ["me/mine", ("me/mine", str(tmp_path / "out"))]


def test_a_hub_that_cannot_be_reached_leaves_the_folder_and_how_to_push_it(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable() -> None:
        raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "huggingface_hub", types.SimpleNamespace(HfApi=unreachable))
    out = tmp_path / "a b"
    with pytest.raises(SystemExit) as stop:
        main(["export", run.name, "--runs-dir", str(run.parent), "--folder", str(out), "--push", "me/mine"])
    shown = capsys.readouterr().out
    assert stop.value.code == 1 and "ConnectionError: no route" in shown and f"levelfield import '{out}'" in shown
    assert f"{out} is kept, and `hf upload me/mine '{out}'` pushes it again" in shown and any(out.iterdir())


def test_the_schema_of_rows_is_published_and_rows_keep_to_it(run: Path) -> None:
    schema = row_schema()
    assert json.loads((ROOT / "docs" / "rows.schema.json").read_text()) == schema, "run python docs/scripts/schema.py"
    kept = [json.loads(line) for line in (run / "rows.jsonl").read_text().splitlines()]
    assert kept
    for row in kept:
        for key, value in row.items():
            assert isinstance(value, PYTHON[schema["properties"][key]["type"]]), (key, value)


def test_another_export_into_a_folder_leaves_what_its_owner_put_there(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "clone"
    assert set(share.pack(run, out)) == set(out.iterdir())
    (out / ".git").mkdir()
    (out / ".git" / "HEAD").write_text("ref")
    (out / "NOTES.md").write_text("mine")
    (out / "probe-old-123456.jsonl").write_text("")
    manifest = read_json(out / share.MANIFEST)
    manifest["files"]["probe-old-123456.jsonl"] = checksum(out / "probe-old-123456.jsonl")
    write_json(out / share.MANIFEST, manifest)
    (out / "rows.jsonl").write_text("{}\n")
    written = share.pack(run, out)
    assert set(out.iterdir()) - set(written) == {out / ".git", out / "NOTES.md"}
    assert (out / ".git" / "HEAD").read_text() == "ref" and (out / "NOTES.md").read_text() == "mine"
    assert (out / "rows.jsonl").read_bytes() == (run / "rows.jsonl").read_bytes()
    assert share.unpack(out, tmp_path / "runs").name == run.name
    assert {path.name for path in tmp_path.iterdir()} == {"clone", "runs"}, "nothing is left beside the folder"


def test_an_empty_folder_that_is_exported_into_is_filled_and_stays(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert share.pack(run, Path())
    assert (Path.cwd() / share.MANIFEST).exists(), "the current folder was another one, and is gone"
    assert f"levelfield.load('{tmp_path.name}'" in Path("README.md").read_text()


def test_a_run_that_another_process_trains_is_left_to_it(run: Path, packed: Path, tmp_path: Path) -> None:
    where = tmp_path / "runs" / run.name
    with claims.claim(where) as mine:
        assert mine is not None
        (where / "checkpoint-0-00000420-abc.safetensors").write_bytes(b"x")
        with pytest.raises(UserError, match="Another process has"):
            share.unpack(packed, tmp_path / "runs")
        assert not store.complete(where) and claims.holder(where) is not None
        assert (where / "checkpoint-0-00000420-abc.safetensors").read_bytes() == b"x"
    assert share.unpack(packed, tmp_path / "runs") == where
    assert {path.name for path in where.iterdir()} == set(read_json(packed / share.MANIFEST)["files"])


def _changed(packed: Path, file: str, text: str) -> None:
    """Changes a file of a packed folder, and what its manifest says of it."""
    (packed / file).write_text(text)
    manifest = read_json(packed / share.MANIFEST)
    manifest["files"][file] = checksum(packed / file)
    write_json(packed / share.MANIFEST, manifest)


def test_another_run_under_its_name_is_refused(run: Path, packed: Path, tmp_path: Path) -> None:
    spec, rows = read_json(packed / store.SPEC), (packed / store.ROWS).read_text()
    for file, text, sentence in [
        (store.SPEC, json.dumps(spec | {"seed": 77}), "spec.json has the seed 77"),
        (store.SPEC, json.dumps(spec | {"protocol": {"name": "other"}}), "spec.json is of the protocol other"),
        (store.SPEC, "[]", "spec.json describes no run"),
        (store.ROWS, rows.replace(run.name, f"{run.name}x"), f"rows.jsonl has rows of {run.name}x"),
    ]:
        before = (packed / file).read_text()
        _changed(packed, file, text)
        with pytest.raises(UserError, match=sentence):
            share.unpack(packed, tmp_path / "runs")
        _changed(packed, file, before)


def a_run() -> Run:
    (protocol,) = efforts.protocols("recall", "smoke", ("scratch",))
    return Run(efforts.generated("recall", "smoke"), efforts.model("recall", efforts.ATTENTION, "smoke"), protocol, 0)


def test_the_id_of_a_run_is_made_again_from_its_description(
    run: Path, packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The toy run stands for one of levelfield's own."""
    made, words = a_run(), ["import", str(packed), "--runs-dir", str(tmp_path / "runs")]
    wider = replace(made, model=replace(made.model, width=2 * made.model.width))
    _changed(packed, store.ROWS, (packed / store.ROWS).read_text().replace(run.name, made.id))
    for file in packed.glob("probe-*"):
        _changed(packed, file.name, file.read_text().replace(run.name, made.id))
    write_json(packed / share.MANIFEST, read_json(packed / share.MANIFEST) | {"run": made.id})
    _changed(packed, store.SPEC, json.dumps(describe(wider)))
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert f"is not the run {made.id}: its spec.json is of {wider.id}" in capsys.readouterr().err
    assert not (tmp_path / "runs" / made.id).exists()
    _changed(packed, store.SPEC, json.dumps(describe(made)))
    main(words)
    assert find_run(made.id, tmp_path / "runs") == made


def test_a_run_of_another_version_is_not_taken_for_another_run() -> None:
    made = a_run()
    spec = json.loads(json.dumps(describe(made)))
    assert restore.another_id(spec, made.id) is None
    assert restore.another_id(spec | {"seed": 1}, made.id) == replace(made, seed=1).id
    older = spec | {"seed": 1, "task": spec["task"] | {"version": spec["task"]["version"] + 1}}
    assert restore.another_id(older, made.id) is None
    assert restore.another_id({"kind": "Nothing"}, made.id) is None


@pytest.mark.parametrize("content", ["{}", "[]", "null", '"x"', "{"])
def test_nothing_is_written_of_a_run_whose_description_is_damaged(run: Path, tmp_path: Path, content: str) -> None:
    where = Path(shutil.copytree(run, tmp_path / run.name))
    for earlier in (False, True):  # a run of an earlier version has no checksum of it
        (where / store.SPEC).write_text(content)
        if earlier:
            (where / store.DONE).write_text("{}")
        with pytest.raises(UserError, match=r"spec\.json is damaged"):
            share.pack(where, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [store.SCORES, store.ROWS, store.LEDGER, store.WEIGHTS])
def test_what_has_changed_since_the_run_was_complete_is_not_exported(run: Path, tmp_path: Path, name: str) -> None:
    where = Path(shutil.copytree(run, tmp_path / run.name))
    content = bytearray((where / name).read_bytes())
    digit = max(place for place, byte in enumerate(content) if chr(byte).isdigit())
    content[digit] ^= 1
    (where / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name} .*has changed since"):
        share.pack(where, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_report_finds_the_imported_run_of_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its record comes along; what is recorded where it is imported stays."""
    monkeypatch.chdir(tmp_path)
    small = dict.fromkeys(("seeds", "steps", "depth"), 1) | {"width": 8, "batch": 4}
    words = ["torch.nn:GRU(bidirectional=True)", "--tasks", "recall", "--protocols", "scratch", "--baselines", "conv"]
    words += ["--effort", "smoke", "--jobs", "1", *[w for name, n in small.items() for w in (f"--{name}", str(n))]]
    main(["compare", *words])
    (record,) = Path("runs/studies").glob("*.json")
    for run_id in read_json(record)["runs"]:
        main(["export", run_id])
        main(["import", f"exported/{run_id}", "--runs-dir", "others"])
    again = Path("others") / "studies" / record.name
    assert read_json(again) == read_json(record)
    reported = shlex.join(["levelfield", "report", words[0], "--effort", "smoke", "--runs-dir", "others"])
    shown = capsys.readouterr().out
    assert f"Its report: {reported}" in shown and f"It is a run of {read_json(record)['study']} at effort" in shown
    main(shlex.split(reported)[1:])
    assert "Wrote report/" in capsys.readouterr().out
    mine = read_json(again) | {"sizes": "others", "runs": {}}
    write_json(again, mine)
    main(["import", f"exported/{run_id}", "--runs-dir", "others"])
    assert read_json(again) == mine, "of other sizes"
    for change in ({"study": "../x"}, {"effort": "../x"}, {"runs": 1}):
        manifest = read_json(Path("exported") / run_id / share.MANIFEST)
        manifest["studies"][0] |= change
        write_json(Path("wrong") / share.MANIFEST, manifest)
        with pytest.raises(UserError, match=r"levelfield-run\.json is damaged"):
            share.described(Path("wrong"))
