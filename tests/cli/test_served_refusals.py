"""What the `ruler` command refuses of a server and its options, each in one sentence, and which folders it takes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import refusals
from fixtures_model_server import Fault, ModelServer, Raw, serving_model
from toy_reader import knows

from levelfield.cli import app
from levelfield.cli.served_command import folder_of
from levelfield.ruler import Bytes, Needle, generate

pytest.importorskip("httpx2", reason="httpx2 is not installed: pip install 'levelfield[serve]'")
KEY = "sk-this-is-the-key"
FEW = ("--tasks", "niah_single_1", "--lengths", "700", "--count", "2", "--tokenizer", "bytes")


def ruler(server: ModelServer, *words: str) -> None:
    app.main(["ruler", server.url, *FEW, *words])


def refused(capsys: pytest.CaptureFixture[str], server: ModelServer, *words: str) -> str:
    return refusals.refused(capsys, "ruler", server.url, *FEW, *words)


def test_blanks_around_a_key_are_no_part_of_it(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.key = KEY
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\r\n")
    ruler(server, "--model", "toy")
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}


@pytest.mark.parametrize("key", [f"{KEY}é", f"{KEY}\ud83d", f"{KEY[:5]}\n{KEY[5:]}", f"{KEY}\x07x"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "MY_KEY": key})
    shown = refused(capsys, server, "--model", "toy", "--key-env", "MY_KEY")
    assert "variable MY_KEY has characters" in shown and KEY[:5] not in shown
    assert server.asked == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--more", '{"model": "other"}'), "cannot set 'model', name the model by --model"),
        (("--more", '{"prompt": "Hi"}'), "cannot set 'prompt', levelfield writes the prompts"),
        (("--more", '{"messages": null}'), "cannot set 'messages', levelfield writes the messages"),
        (("--more", '{"stream": true}'), "cannot set 'stream', answers are read whole"),
        (("--more", '{"n": 2}'), "cannot set 'n', each question has one answer"),
        (("--more", '{"max_tokens": null}'), "cannot set 'max_tokens', each task has its own, with --thinking added"),
        (("--more", '{"max_completion_tokens": 128}'), "in the field that --budget-field names: leave it out."),
        (("--more", '{"temperature": 1}'), "has an option of its own: give --temperature"),
        (("--more", '{"continue_final_message": true}'), "choose --ask chat-prefix"),
        (("--more", '{"chat_template_kwargs": 5}'), "takes an object"),
        (("--more", '{"top_p": NaN}'), "has NaN or Infinity"),
        (("--more", '{"top_p": [1e999]}'), "has NaN or Infinity"),
        (("--more", '{"user": "\\ud83d"}'), "half a character"),
        (("--more", '{"a":' * 50_000), "is no JSON object"),
        (("--system", "\udcff", "--ask", "chat"), "is not in UTF-8"),
        (("--at-once", "0"), "--at-once 0 is out of range: give a whole number from 1 to 1,000."),
        (("--timeout", "1000000000"), "--timeout 1000000000 is out of range: give a whole number from 1 to 1,000,000."),
        (("--device", "cuda:1"), "leave out --device."),
        (("--reference-bug", "--precision", "bfloat16"), "leave out --precision and --reference-bug."),
        (("--device", "cuda", "--devices", "2"), "leave out --device and --copies (--devices)."),
        (("--engine", "slurm", "--gpus", "2", "--threads", "1"), "leave out --engine and --threads and --gpus."),
    ],
)
def test_what_no_request_can_have_is_refused(
    server: ModelServer, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    shown = refused(capsys, server, "--model", "toy", *words)
    assert said in shown and len(shown) < 400
    assert server.asked == [] and not Path("runs").exists()


def test_what_an_option_sets_can_be_left_out_of_requests(server: ModelServer) -> None:
    ruler(server, "--model", "toy", "--more", '{"temperature": null, "stream": false, "n": 1}')
    assert [("temperature" in body, body["stream"]) for body in server.asked] == [(False, False)] * 2


@pytest.mark.parametrize(
    ("listing", "said"),
    [
        (Raw(b'{"error": {"message": "no key"}}', 401), "refuses (401: no key): set the key"),
        (Raw(status=301, headers={"Location": "https://other/api/v1/models"}), "give https://other/api/v1."),
        (Raw(b'{"error": "not yet"}', 503), "Add --model NAME; it does not say which it has (503: not yet)."),
        (Raw(b'{"data": []}'), "Add --model NAME; it does not say which it has."),
        (Raw(b"no gzip", 200, {"Content-Encoding": "gzip"}), "Add --model NAME; it does not say which it has ("),
    ],
)
def test_why_a_server_lists_no_models_is_said(
    server: ModelServer, capsys: pytest.CaptureFixture[str], listing: Raw, said: str
) -> None:
    server.listing = listing
    assert said in refused(capsys, server)
    ruler(server, "--model", "toy")
    assert len(server.asked) == 2, "a model that is named is asked all the same"


@pytest.mark.parametrize("limit", [0, -1, True])
def test_a_limit_that_can_be_none_is_not_known(server: ModelServer, limit: int) -> None:
    server.models = [{"id": "toy", "max_model_len": limit}]
    ruler(server, "--dry-run")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("toy", "toy-served"),
        ("org/toy_1.5:8b", "toy_1.5-8b-served"),
        ("ü" * 26, "ü" * 26 + "-served"),
        ("x" * 53, "x" * 53 + "-served"),
        ("My Model.gguf", "My-Model.gguf-served"),
        ("claude-3-5-sonnet@20240620", "claude-3-5-sonnet-20240620-served"),
        ("C:\\models\\a.gguf", "C--models-a.gguf-served"),
        ("..", "..-served"),
    ],
)
def test_a_model_of_any_name_has_a_folder(name: str, folder: str) -> None:
    assert folder_of(name, Path("runs")) == Path("runs/ruler") / folder


def test_names_that_are_too_long_are_cut_and_told_apart() -> None:
    names = ["x" * 54, "x" * 55, "ü" * 40, "\U0001f4a9" * 70, "a/" + "x" * 54]
    found = [folder_of(name, Path()).name for name in names]
    assert len(set(found)) == len(names) and all(len(each.encode()) <= 60 for each in found)
    assert all(each.endswith("-served") for each in found) and found[0].startswith("x" * 46 + "-")


def test_a_name_with_blanks_is_evaluated(server: ModelServer) -> None:
    server.models = [{"id": "/models/My Model.gguf"}]
    ruler(server)
    assert {body["model"] for body in server.asked} == {"/models/My Model.gguf"}
    assert Path("runs/ruler/My-Model.gguf-served/rows.jsonl").exists()


def test_another_server_with_the_same_model_is_told_once(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    ruler(server, "--model", "toy")
    known = json.loads(Path("runs/ruler/toy-served/model.json").read_text())
    assert known["address"] == server.url
    server.url = server.url.replace("127.0.0.1", "localhost")
    ruler(server, "--model", "toy")
    assert "are of toy at" not in capsys.readouterr().out, "two names of this machine"
    with serving_model(knows) as other:
        for said in (True, False):
            ruler(other, "--model", "toy")
            told = f"are of toy at {server.url}, and it is {other.url} that is asked now: if that is another model"
            assert (told in capsys.readouterr().out) == said


def test_an_address_that_answered_nothing_is_not_that_of_the_last_answers(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip in the address is refused, and the right address, asked again, is none that has changed."""
    ruler(server, "--model", "toy", "--count", "1")
    with serving_model(knows) as other:
        other.key = "of someone else"
        with pytest.raises(SystemExit):
            ruler(other, "--model", "toy", "--count", "2")
    capsys.readouterr()
    ruler(server, "--model", "toy", "--count", "2")
    assert "are of toy at" not in capsys.readouterr().out


def failed(capsys: pytest.CaptureFixture[str], server: ModelServer, *words: str) -> str:
    """Returns the sentence on standard error of a command that ends with exit code 1."""
    with pytest.raises(SystemExit) as stop:
        ruler(server, "--model", "toy", "--tries", "1", "--at-once", "1", *words)
    shown = capsys.readouterr().err
    assert stop.value.code == 1 and shown.count("\n") == 1, shown
    return shown


@pytest.mark.parametrize("fault", ["429", "500", "drop", "page"])
def test_a_server_that_fails_after_some_answers_leaves_something_to_do(
    server: ModelServer, capsys: pytest.CaptureFixture[str], fault: Fault
) -> None:
    server.faults = ["good", "good", "good", "good", *(fault for _ in range(20))]
    assert "What it answered is stored: run the same command again to continue, or with --rescore" in failed(
        capsys, server, "--count", "9"
    )
    assert len(server.answered) == 4
    server.faults = ["good"]
    ruler(server, "--model", "toy", "--count", "9")
    assert len(server.answered) == len(set(server.answered)) == 9


def test_a_key_that_is_refused_after_some_answers_leaves_something_to_do(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def says(prompt: str) -> str:
        server.key = KEY * (len(server.answered) == 3)
        return knows(prompt)

    server.says = says
    shown = failed(capsys, server, "--count", "9")
    assert "set the key" in shown and "What it answered is stored." in shown and len(server.answered) == 4
    assert "set the key" in refused(capsys, server, "--model", "toy", "--count", "9"), "nothing was done"


def test_a_server_that_counts_no_more_tokens_leaves_something_to_do(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stops when as much has been counted as the questions of the first length take, asked alone before."""
    counted, most = [], [10**6]

    def tokenize(text: str) -> list[int]:
        counted.append(text)
        if len(counted) > most[0]:
            raise ConnectionError
        return list(text.encode())

    server.tokenize = tokenize
    words = ["ruler", server.url, *FEW[:-2], "--model", "toy", "--tries", "1", "--tokenizer", "server"]
    app.main([*words, "--lengths", "700", "--runs-dir", "alone"])
    most[0] = len(counted)
    counted.clear()
    server.answered.clear()
    shown = failed(capsys, server, "--lengths", "700", "900", "--tokenizer", "server")
    assert "does not count tokens now" in shown and len(server.answered) < 4


def test_a_folder_goes_on_with_the_counts_that_it_was_begun_with(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a server that is still loading its model neither has a tokenize endpoint nor lacks one."""
    words = [server.url, *FEW[:-2], "--model", "toy", "--tries", "1"]
    app.main(["ruler", *words, "--runs-dir", "a"])
    server.tokenize = lambda text: list(text.encode())
    app.main(["ruler", *words, "--runs-dir", "a", "--count", "3"])
    assert "Tokens are counted by an approximation" in capsys.readouterr().out and len(server.answered) == 3
    app.main(["ruler", *words, "--runs-dir", "b"])
    server.loading = 1_000
    for folder in ("b", "c"):
        with pytest.raises(SystemExit) as stop:
            app.main(["ruler", *words, "--runs-dir", folder, "--count", "3"])
        shown = capsys.readouterr().err
        assert stop.value.code == 1 and "503: Loading model): run the same command again" in shown, shown
    server.loading = 0
    for folder in ("b", "c"):
        app.main(["ruler", *words, "--runs-dir", folder, "--count", "3"])
        assert json.loads(Path(folder, "ruler/toy-served/model.json").read_text())["tokenizer"] == "server"


def test_a_dry_run_refuses_a_folder_that_was_begun_with_another_tokenizer(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    ruler(server, "--model", "toy")
    words = ("--model", "toy", "--tokenizer", "approximate")
    said = refused(capsys, server, *words)
    assert "another tokenizer (bytes there, approximate here): give what they" in said
    assert refused(capsys, server, *words, "--dry-run") == said


def test_a_length_beyond_the_servers_context_is_said_and_costs_no_other(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.context = 700
    words = ("--model", "toy", "--lengths", "700", "1000", "--count", "9", "--at-once", "1")
    for asked in (9 + 3, 3):
        shown = refused(capsys, server, *words)
        assert "takes no prompts of 1000 tokens" in shown and "give shorter --lengths, or start it with a lon" in shown
        assert asked <= len(server.asked) <= asked + 2, "three of them, and what was on its way"
        rows = [json.loads(line) for line in Path("runs/ruler/toy-served/rows.jsonl").read_text().splitlines()]
        cells = {row["at"]: (row["status"], row.get("value")) for row in rows if row["metric"] == "accuracy"}
        assert cells["length=700"] == ("ok", 100.0) and cells["length=1000"] == ("left_out", None)
        assert Path("report/ruler-toy-served/report.html").exists()
        server.asked.clear()
    server.context = 1000
    ruler(server, *words)


def test_some_prompts_beyond_the_servers_context_are_left_out_alone(server: ModelServer) -> None:
    sizes = sorted(len(s.text) for s in generate(Needle(haystack="noise"), 700, Bytes(), count=9))
    server.context = sizes[-1] - 1
    ruler(server, "--model", "toy", "--count", "9", "--at-once", "1")
    rows = [json.loads(line) for line in Path("runs/ruler/toy-served/rows.jsonl").read_text().splitlines()]
    kept = sum(size < sizes[-1] for size in sizes)
    assert {row["n"] for row in rows if row["at"] == "length=700"} == {kept} and 0 < kept < 9


@pytest.mark.parametrize("fault", ["429", "500", "drop"])
def test_a_server_that_answers_nothing_yet_is_no_wrong_input(
    server: ModelServer, capsys: pytest.CaptureFixture[str], fault: Fault
) -> None:
    server.faults = [fault]
    for count in ("2", "9"):
        with pytest.raises(SystemExit) as stop:
            ruler(server, "--model", "toy", "--tries", "1", "--count", count)
        shown = capsys.readouterr().err
        assert stop.value.code == 1 and "run the same command again" in shown and "stored" not in shown, shown


def test_a_web_page_is_a_wrong_address_unless_the_server_has_answered(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.reply = Raw(b"<html>gateway</html>")
    assert "answers with a web page (gateway): give the address" in refused(capsys, server, "--model", "toy")
    assert len(server.asked) <= 4, "no pause mends it"
    server.reply, server.faults = None, ["good", "page", "good", "page"]
    ruler(server, "--model", "toy", "--at-once", "1", "--count", "3")
    assert len(server.answered) == 3


def test_an_address_that_cannot_be_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        app.main(["ruler", "http://127.0.0.1:abc/v1", "--model", "toy"])
    assert stop.value.code == 2 and "give one such as http://127.0.0.1:8000/v1" in capsys.readouterr().err


def test_a_name_that_is_no_text_is_refused(server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not in UTF-8" in refused(capsys, server, "--model", "\udcff")
