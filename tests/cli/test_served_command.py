"""The `ruler` command on the address of a server: what it says, asks, refuses and writes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import refusals
from fixtures_model_server import ModelServer
from toy_reader import knows

from levelfield.cli import app, arguments, served_command
from levelfield.cli.served_command import counted, is_address
from levelfield.cli.served_options import way_of
from levelfield.longcontext.answers import predictions
from levelfield.longcontext.predictions import Prediction
from levelfield.longcontext.served.client import Patience
from levelfield.ruler import Bytes, Needle, generate
from levelfield.spec import UserError

pytest.importorskip("httpx2", reason="httpx2 is not installed: pip install 'levelfield[serve]'")
KEY = "sk-this-is-the-key"
NOBODY = "http://127.0.0.1:9/v1"
FEW = ("--tasks", "niah_single_1", "--lengths", "700", "--count", "4", "--tokenizer", "bytes")


def ruler(server: ModelServer, *words: str) -> None:
    app.main(["ruler", server.url, *FEW, *words])


def refused(capsys: pytest.CaptureFixture[str], server: ModelServer, *words: str) -> str:
    return refusals.refused(capsys, "ruler", server.url, *FEW, *words)


def test_it_asks_stores_and_reports_and_keeps_the_key_to_itself(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.models, server.key, server.faults = [{"id": "org/toy", "max_model_len": 900}], KEY, ["good", "500", "cut"]
    assert "set the key" in refused(capsys, server)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    ruler(server)
    shown = capsys.readouterr()
    assert "org/toy at http://127.0.0.1" in shown.out
    assert "4 questions. To read: at most 2,288 tokens; to write: at most 512." in shown.out
    rows = [json.loads(line) for line in Path("runs/ruler/toy-served/rows.jsonl").read_text().splitlines()]
    assert {row["value"] for row in rows if row["metric"] == "accuracy"} == {100.0}
    assert {row["asked"] for row in rows} == {"completions of text, template base, temperature 0"}
    page = Path("report/ruler-toy-served/report.html").read_text()
    assert "Asked by completions of text, template base, temperature 0." in page
    assert {headers["Authorization"] for headers in server.headers[-4:]} == {f"Bearer {KEY}"}
    assert KEY not in shown.out + shown.err
    files = [path for path in Path().rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    ruler(server, "--dry-run")
    shown = capsys.readouterr().out
    assert "4 of them answered before. To read: at most 0 tokens" in shown and "Time: none" in shown
    noted = json.loads(Path("runs/ruler/toy-served/pace.json").read_text())
    ruler(server, "--dry-run", "--count", "1000")
    assert (
        f"at the {noted['tokens'] / noted['seconds']:,.0f} tokens a second of the last answers"
        in capsys.readouterr().out
    )


def test_a_key_that_the_server_repeats_is_neither_shown_nor_stored(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.key, server.faults = KEY, ["good", "503"]
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(SystemExit) as stop:
        ruler(server, "--model", "toy", "--tries", "1", "--at-once", "1")
    assert stop.value.code == 1, "some questions have no answer"
    shown = capsys.readouterr()
    left = Path("runs/ruler/toy-served/left_out.jsonl").read_text()
    assert "503: not now for Bearer ***" in left
    assert KEY not in left + shown.out + shown.err


def test_the_exit_code_says_whether_to_run_it_again(server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    """A question that is refused for good would let a loop until all is well never end."""
    first = next(generate(Needle(haystack="noise"), 700, Bytes(), count=1)).text
    server.refuses = lambda prompt: prompt == first
    ruler(server, "--model", "toy")
    said = "Left out of niah_single_1 at 700: 1 sample. The server refuses this question for good, and answers others"
    assert said in capsys.readouterr().out
    rows = [json.loads(line) for line in Path("runs/ruler/toy-served/rows.jsonl").read_text().splitlines()]
    whole = [row for row in rows if row["metric"] == "accuracy" and row["at"] == "length=700"]
    assert [(row["status"], row["value"], row["n"]) for row in whole] == [("partial", 100.0, 3)]

    def says(prompt: str) -> str:
        if prompt == first:
            raise RuntimeError
        return knows(prompt)

    server.refuses, server.says = lambda prompt: False, says
    with pytest.raises(SystemExit) as stop:
        ruler(server, "--model", "toy", "--tries", "1")
    assert stop.value.code == 1
    assert "did not answer" in capsys.readouterr().out
    server.says = knows
    ruler(server, "--model", "toy")


def test_a_dry_run_and_a_high_cost_ask_nothing(server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    ruler(server, "--model", "toy", "--dry-run", "--prices", "1000,2000")
    shown = capsys.readouterr().out
    assert "Cost: at most $3.31." in shown  # 2,288 / 1000 + 512 / 500
    assert "Time: not known before something was answered" in shown
    ruler(server, "--model", "toy", "--dry-run", "--count", "1", "--tasks", "niah_single_1", "--prices", "0.1,0.1")
    assert "1 question. " in (shown := capsys.readouterr().out) and "Cost: under $0.01." in shown
    assert not Path("runs").exists()
    assert "add --yes" in refused(capsys, server, "--model", "toy", "--prices", "9000,9000")
    assert "$2.80 is more than the limit of $0.50" in refused(
        capsys, server, "--model", "toy", "--prices", "1000,1000", "--limit", "0.5"
    )
    assert "--limit" in (said := refused(capsys, server, "--model", "toy", "--limit", "few")) and "no amount" in said
    assert "'-1' is no amount of dollars: give one such as 5" in refused(capsys, server, "--limit", "-1")
    assert server.asked == []
    ruler(server, "--model", "toy", "--prices", "9000,9000", "--yes")
    assert len(server.asked) == 4


def test_what_requests_let_a_model_write_is_what_costs(server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "toy", "--ask", "chat", "--thinking", "3968", "--prices", "0,1000")
    ruler(server, *words, "--dry-run")
    assert "to write: at most 16,384. Cost without it: at most $16.38." in capsys.readouterr().out
    assert "add --yes" in refused(capsys, server, *words)
    assert server.asked == []
    ruler(server, *words, "--yes")
    assert [body["max_tokens"] for body in server.asked] == [4096] * 4


def test_a_system_prompt_costs_and_has_to_fit(server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    """What our bill says is compared with what the server counts, which adds nothing of a template here."""
    server.models = [{"id": "toy", "max_model_len": 1200}]
    words = ("--ask", "chat", "--system", "Answer briefly. " * 30, "--count", "2")
    ruler(server, *words, "--dry-run", "--prices", "1000,0")
    shown = capsys.readouterr().out
    assert "at most 2,104 tokens without the server's template;" in shown and "Cost without it: at most $2.10." in shown
    assert 'briefly. ", which lengths leave out, too, temperature 0' in shown
    ruler(server, *words)
    read = sum(p.counted["prompt"] for p in predictions(Path("runs/ruler/toy-served")))
    assert 2_000 < read <= 2_104
    assert "give --lengths up to 720" in refused(capsys, server, *words, "--lengths", "721")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Which model of .*: Add --model NAME; it has a, b"),
        (("--model", "c", "--rescore"), "There are no predictions in"),
        (("--rescore",), "add --model NAME"),
        (("--model", "c", "--more", "[1]"), "is no JSON object"),
        (("--model", "c", "--temperature", "-1"), "temperature of -1 cannot be"),
        (("--model", "c", "--prices", "1"), "two numbers"),
        (("--model", "c", "--key-env", "NO_SUCH_NAME"), "NO_SUCH_NAME is not set"),
        (("--model", "c", "--ask", "chat", "--template", "meta-chat"), "the server writes the template"),
        (("--model", "c", "--template", "own"), "has no chat template"),
        (("--model", "c", "--system", "Hi"), "needs a chat template"),
        (("--model", "a", "--thinking", "500"), "takes at most 900 tokens"),
        (("--model", "a", "--thinking", "500"), "give --lengths up to 400, or less --thinking."),
        (("--model", "a", "--ask", "chat", "--lengths", "901"), "up to 900, and leave room for the chat template"),
        (("--model", "a", "--thinking", "900"), "no room for a question: give less --thinking"),
        (("--model", "c", "--tokenizer", "server"), "no tokenize endpoint"),
        (("--model", "c", "--tokenizer", "approximate", "--ask", "ids"), "an approximation has no ids"),
        (("--model", "llama.cpp", "--lengths", "1024"), "takes at most 800 tokens"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_asked(
    server: ModelServer, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    server.models = [{"id": "a", "max_model_len": 900}, {"id": "b"}, {"id": "llama.cpp", "meta": {"n_ctx": 800}}]
    shown = refused(capsys, server, *words)
    assert all(part in shown for part in said.split(".*: ")), shown
    assert server.asked == []


def test_an_address_without_its_path_is_told_the_path(server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.models, whole = [{"id": "a"}], server.url
    server.url = whole.removesuffix("/v1")
    assert f"answers under {whole}: give that address" in refused(capsys, server)
    assert server.asked == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("localhost:8000", "give http://localhost:8000."),
        ("127.0.0.1:8000/v1", "give http://127.0.0.1:8000/v1."),
        ("htp://host:80/v1", "give http://host:80/v1."),
        ("http:/host:80/v1", "give http://host:80/v1."),
        ("http://host/v1/chat/completions/", "give http://host/v1."),
        ("https://host/v1/completions", "give https://host/v1."),
    ],
)
def test_an_address_that_is_nearly_one_is_told_the_whole(
    capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        app.main(["ruler", name, "--lengths", "700"])
    assert stop.value.code == 2 and capsys.readouterr().err.endswith(f"{said}\n")


def test_a_model_that_the_server_does_not_list_is_said_with_those_that_it_has(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is asked all the same, since many servers take further names."""
    server.models = [{"id": f"m{n}"} for n in range(10)]
    ruler(server, "--model", "m10", "--dry-run")
    said = "The server lists no model m10, and may refuse it: it has m0, m1, m2, m3, m4, m5, m6, m7 and 2 more."
    assert said in capsys.readouterr().out
    ruler(server, "--model", "m1", "--dry-run")
    assert "lists no model" not in capsys.readouterr().out


def test_a_name_that_a_terminal_would_obey_is_not_shown(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.models = [{"id": "a\x1b[2J"}, {"id": "b"}, {"id": "c"}]
    assert "it has b, c" in refused(capsys, server)


def test_it_is_said_too_where_the_tokenizer_of_that_model_cannot_be_had(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.models = [{"id": "m0"}]
    with pytest.raises(SystemExit) as stop:
        ruler(server, "--model", "m1", "--tokenizer", "server")
    said = capsys.readouterr()
    assert stop.value.code == 2 and "no model m1" in said.out and "no tokenize endpoint for m1" in said.err


def test_a_folder_of_reports_is_made_before_anything_is_asked(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--report-dir" in refused(capsys, server, "--model", "a", "--report-dir", "/proc/none")
    assert server.asked == [] and not Path("runs").exists()


def test_options_of_servers_are_refused_for_a_model_that_is_loaded_here(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app.main(["ruler", "some/folder", "--prices", "1,2"])
    assert "some/folder is no address" in capsys.readouterr().err


def test_a_server_that_cuts_prompts_off_is_noticed() -> None:
    """Some servers read only the end of a long prompt, and say so in their counts alone."""
    sample = next(generate(Needle(haystack="noise"), 700, Bytes(), count=1))
    answer = Prediction.of(sample, Needle(haystack="noise"), text="", made=0, status="ok")
    whole, short = (replace(answer, counted={"prompt": n}) for n in (len(sample.ids) + 1, 256))
    exact = {answer.template: "completions of text"}
    assert list(counted([whole, answer], exact)) == []
    assert next(iter(counted([whole, short], exact))).endswith("it may have cut some off.")
    (other,) = counted([replace(answer, counted={"prompt": answer.tokens + 99})] * 2, exact)
    assert f"the server counted {answer.tokens + 99:,} tokens of prompt; by the tokenizer here they have" in other
    assert other.endswith(f" {answer.tokens:,}."), "the prompt alone, and no range"
    (near,) = counted([whole, short], {answer.template: "completions of text; lengths are approximate"})
    assert "cut" not in near and near.endswith(f"by the approximation here they have {answer.tokens:,}.")


def test_answers_under_the_label_of_an_earlier_version_are_not_asked_again(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--model", "toy", "--more", '{"seed": 1, "top_p": 0.9}')
    with monkeypatch.context() as patched:
        patched.setattr(served_command, "way_of", lambda options: replace(way_of(options), earlier=True))
        ruler(server, *words)
    ruler(server, *words)
    assert len(server.asked) == 4
    ruler(server, *words[:2], "--more", '{"seed": 2}')
    ruler(server, *words[:2], "--temperature", "0.7", "--more", '{"temperature":null,"seed":2}')
    ruler(server, *words[:2], "--more", '{"seed": 2, "temperature": null}')
    assert len(server.asked) == 12, "a temperature that is not sent makes no other question"


def test_answers_that_end_in_a_thought_are_counted(server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.says, server.reasoning = lambda prompt: None, "We need to find the number"
    server.ends = lambda prompt: "length"
    ruler(server, "--model", "toy", "--ask", "chat")
    said = "4 of 4 answers at 700 (chat) ended while the model was thinking, and are empty: give a greater --thinking."
    assert said in capsys.readouterr().out
    cut = {s.text for s in generate(Needle(haystack="noise"), 700, Bytes(), count=4) if s.index % 2}
    server.says = lambda prompt: f"I see{knows(prompt)}" if prompt in cut else f"Well.</think>{knows(prompt)}"
    server.ends, server.reasoning = lambda prompt: "length" if prompt in cut else "stop", ""
    ruler(server, "--model", "toy", "--ask", "chat", "--thinking", "9")
    shown = capsys.readouterr().out
    assert "2 of 4 answers at 700" in shown
    assert "niah_single_1  50.0" in shown, "the table at the end of the questions, too"


def test_patience_grows_and_ends() -> None:
    patience = Patience(first=1.0, longest=10.0)
    assert all(0.5 * 2**n <= patience.pause(n + 1) <= 2**n for n in range(3) for _ in range(20))
    assert 5 <= patience.pause(100) <= 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tasks", "niah_singel_1"), "did you mean 'niah_single_1'?"),
        (("--count", "0"), "--count 0 is out of range: give a whole number from 1 to"),
        (("--lengths", "0"), "--lengths 0 is out of range"),
        (("--lengths", "9"), "A length of 9 has no room for a prompt"),
        (("--template", "meta-chta"), "did you mean 'meta-chat'?"),
        (("--tokenizer", "no-such-folder"), "There is no folder no-such-folder"),
    ],
)
def test_what_needs_no_server_is_refused_without_one(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert said in refusals.refused(capsys, "ruler", NOBODY, "--model", "toy", *FEW, *words)
    assert said in refusals.refused(capsys, "ruler", NOBODY, *FEW, *words)


def test_a_missing_package_is_told_with_both_ways_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    shown = refusals.refused(capsys, "ruler", NOBODY, "--model", "toy", "--tokenizer", str(tmp_path))
    assert "pip install 'levelfield[text]'" in shown and "--tokenizer approximate" in shown


def test_a_dry_run_that_needs_no_server_goes_on_without_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    app.main(["ruler", NOBODY, "--model", "toy", *FEW, "--dry-run"])
    shown = capsys.readouterr().out
    assert "No server answers at" in shown and "The dry run goes on without it" in shown
    assert "4 questions. To read: at most 2,288 tokens" in shown and not Path("runs").exists()
    for words in ((*FEW, "--dry-run"), (*FEW, "--model", "toy"), ("--model", "toy", "--dry-run")):
        assert "No server answers" in refusals.refused(capsys, "ruler", NOBODY, *words)


def test_without_a_server_what_is_stored_can_be_had_by_the_option_that_is_named(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    ruler(server, "--model", "toy")
    shown = refusals.refused(capsys, "ruler", NOBODY, *FEW, "--model", "toy")
    assert "No server answers at" in shown and shown.rstrip().endswith("what is stored, give --rescore.")
    app.main(["ruler", NOBODY, *FEW, "--model", "toy", "--rescore"])
    assert "rescore" not in refusals.refused(capsys, "ruler", NOBODY, *FEW, "--model", "other")


def test_only_what_was_asked_is_said_to_be_left_out(server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    ruler(server, "--model", "toy", "--tasks", "vt", "niah_single_1")
    assert "Left out of vt at 700: 4 samples." in capsys.readouterr().out
    for _ in range(2):
        ruler(server, "--model", "toy")
        assert "Left out" not in capsys.readouterr().out
    for words in (("--model", "toy", "--rescore"), ("--model", "toy", "--tasks", "vt", "niah_single_1")):
        ruler(server, *words)
        assert "Left out of vt at 700: 4 samples." in capsys.readouterr().out


def test_a_length_may_be_given_in_thousands_and_millions(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The field writes 4K for 4096, and 1M for 1,048,576."""
    assert (arguments.tokens("1m"), arguments.tokens("2M")) == (1 << 20, 1 << 21)
    ruler(server, "--model", "toy", "--lengths", "1k,2K,700", "--dry-run")
    ruler(server, "--model", "toy", "--lengths", "1024", "2048", "700", "--dry-run")
    (one, two) = [line for line in capsys.readouterr().out.splitlines() if "To read" in line]
    assert one == two and "12 questions" in one
    for word in ("4 k", "k", "4kb", "1.5k"):
        assert "give one such as 4096 or 4k." in refused(capsys, server, "--model", "toy", f"--lengths={word},x")


@pytest.mark.parametrize("option", ["--at-once", "--tries", "--timeout"])
def test_what_has_to_be_1_or_more_is_refused_below(
    server: ModelServer, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, server, "--model", "toy", option, "0")
    assert f"{option} 0 is out of range: give a whole number from 1 to" in said


def test_another_scheme_is_told_from_a_folder() -> None:
    with pytest.raises(UserError, match="not by htp: give http://HOST:PORT/v1"):
        is_address("htp://model/v1")
    with pytest.raises(UserError, match="give http://model:80/v1"):
        is_address("htp://model:80/v1")
    assert is_address("http://model/v1") and not is_address("models/tiny")
