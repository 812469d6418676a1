"""A model that is loaded here has a system prompt and may think before its answer, as one behind a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from toy_reader import Says, knows, run

from levelfield.cli import dry_run, ruler_command
from levelfield.longcontext.answers import predictions
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import Prediction
from levelfield.longcontext.served.way import Way
from levelfield.pretrained.tokenizers.chat_template import ChatTemplate
from levelfield.ruler import Bytes

CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
FEW = ("--lengths", "900", "--tasks", "niah_single_1", "--count", "2", "--template", "own")
THINKING, SYSTEM = ("--thinking", "200"), ("--system", "Be brief.")
Asks = Callable[..., list[Prediction]]


class Chatting(Bytes):
    """Bytes with a chat template."""

    def __init__(self, source: str = CHAT) -> None:
        self.chat_template = ChatTemplate(source, {}, "here")


@pytest.fixture
def asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asks:
    """Returns a function that evaluates a model which answers by a function, and returns its answers."""
    monkeypatch.chdir(tmp_path)

    def ask(says: Says, *words: str, source: str = CHAT) -> list[Prediction]:
        monkeypatch.setattr(ruler_command, "tokenizer_of", lambda *_: Chatting(source))
        run(monkeypatch, Path(), *FEW, *words, says=says)
        return predictions(Path("runs/ruler/model"))

    return ask


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("runs/ruler/model/rows.jsonl").read_text().splitlines()]


def test_a_thought_is_parted_counted_and_not_scored(asks: Asks) -> None:
    read: list[str] = []

    def says(prompt: str) -> str:
        read.append(prompt)
        return f"<think>Is it{knows(prompt)}?</think> It is{knows(prompt)}."

    found = asks(says, *THINKING, *SYSTEM)
    assert all(prompt.startswith("<system>Be brief.<user>A special magic number") for prompt in read)
    (label,) = {p.template for p in found}
    assert label == Way(system="Be brief.", thinking=200).label("own") and label.startswith("own-text-")
    for p in found:
        assert p.text.strip() == f"It is {p.references[0]}." and p.reasoning == f"Is it {p.references[0]}?"
        assert (p.finish, p.counted, p.made) == ("stop", {"thought": 14}, len("<think></think>") + 14 + len(p.text))
    said = 'template own, system prompt "Be brief.", temperature 0, 200 tokens to think'
    assert {row["asked"] for row in rows()} == {f"prompts to the model itself, {said}"}
    values = {row["metric"]: row["value"] for row in rows()}
    assert (values["accuracy"], values["thinking_tokens"]) == (100.0, 14.0)
    again = asks(lambda prompt: pytest.fail("it was asked"), *THINKING, *SYSTEM)
    assert again == found


def test_tokens_that_run_out_in_a_thought_are_told(asks: Asks, capsys: pytest.CaptureFixture[str]) -> None:
    found = asks(lambda prompt: f"<think>It is{knows(prompt)}", *THINKING)
    assert {(p.text, p.finish, p.made) for p in found} == {("", "length", 128 + 200)}
    assert "2 of 2 answers at 900 (own-text-" in (shown := capsys.readouterr().out) and "greater --thinking" in shown
    assert {row["value"] for row in rows() if row["metric"] == "ended_thinking"} == {2}


def test_a_thought_that_the_template_opens_has_to_be_closed(asks: Asks, capsys: pytest.CaptureFixture[str]) -> None:
    read: dict[str, bool] = {}

    def says(prompt: str) -> str:
        closes = read.setdefault(prompt, not read)
        return f"It is{knows(prompt)}{'</think>' + knows(prompt) if closes else ''}"

    found = asks(says, *THINKING, source=f"{CHAT}<think>\n")
    assert {(p.text.strip() in p.references, p.finish, p.think_open) for p in found} == {
        (True, "stop", True),
        (False, "length", True),
    }
    assert [bool(p.text) for p in found if p.finish == "length"] == [False], "the number stood in its thought alone"
    assert "4 answers" not in capsys.readouterr().out, "those that are read again count once"


def test_other_thinking_is_another_question_and_without_any_nothing_changes(asks: Asks) -> None:
    asks(knows)
    found = asks(knows, "--thinking", "50")
    assert len(found) == 4 and {p.template for p in found} == {"own", Way(thinking=50).label("own")}
    assert all((p.finish, p.reasoning, p.think_open) == ("", "", False) for p in found if p.template == "own")
    assert {p.text.split()[0] for p in found} == {p.references[0] for p in found}


def test_what_may_be_thought_is_billed_and_has_to_fit(
    asks: Asks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asks(knows)
    monkeypatch.setattr(dry_run, "_read", lambda *_: (Bytes(), 0))
    capsys.readouterr()
    run(monkeypatch, Path(), *FEW, *THINKING, "--dry-run")
    assert f"to write: at most {2 * (128 + 200)}." in capsys.readouterr().out
    monkeypatch.setattr(ruler_command, "max_length", lambda *_: 1000)
    said = refused(capsys, "ruler", "some/model", *FEW, *THINKING)
    assert "give --lengths up to 800, or less --thinking." in said


def test_both_need_a_chat_template(asks: Asks, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (THINKING, SYSTEM):
        assert "add --template own" in refused(capsys, "ruler", "some/model", *FEW[:-2], *words)
    assert "options of servers were given" in refused(capsys, "ruler", "some/model", *FEW, "--ask", "chat")


def test_copies_of_a_model_are_told_what_may_be_thought() -> None:
    plain = Evaluation(around=("<user>", "<think>"), template="own-text-0")
    for each in (plain, replace(plain, thinking=9)):
        assert Evaluation.restored(json.loads(json.dumps(each.record, default=list))) == each
    assert "thinking" not in plain.record
