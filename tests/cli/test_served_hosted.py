"""The `ruler` command on hosted models that take other requests than most servers do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import refusals
from fixtures_model_server import ModelServer, Raw

from levelfield.cli import app
from levelfield.longcontext.answers import predictions

pytest.importorskip("httpx2", reason="httpx2 is not installed: pip install 'levelfield[serve]'")
FEW = ("--model", "toy", "--tasks", "niah_single_1", "vt", "--lengths", "1200", "--count", "1", "--tokenizer", "bytes")
FOLDER = Path("runs/ruler/toy-served")


def ruler(server: ModelServer, *words: str) -> None:
    app.main(["ruler", server.url, *FEW, *words])


def refused(capsys: pytest.CaptureFixture[str], server: ModelServer, *words: str) -> str:
    return refusals.refused(capsys, "ruler", server.url, *FEW, *words)


def reasoning(body: Mapping[str, Any]) -> str:
    """Refuses what hosted reasoning models do, in their words."""
    if "max_tokens" in body:
        said = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        return f"Unsupported parameter: {said}"
    if "temperature" in body:
        return "Unsupported value: 'temperature' does not support 0 with this model."
    return ""


def asked(folder: Path = FOLDER) -> set[str]:
    """Returns how the rows of a folder say that questions were put."""
    return {row["asked"] for row in map(json.loads, (folder / "rows.jsonl").read_text().splitlines())}


def test_every_task_has_its_own_budget_in_the_field_that_the_model_takes(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lacks = reasoning
    chat = ("--ask", "chat", "--thinking", "1000")
    shown = refused(capsys, server, *chat)
    assert "give the --budget-field that it takes (max_tokens or max_completion_tokens)" in shown
    assert """--more '{"temperature": null}'""" in shown and "4096" not in shown
    field = ("--budget-field", "max_completion_tokens")
    assert """add --more '{"temperature": null}'""" in refused(capsys, server, *chat, *field)
    server.asked.clear()
    ruler(server, *chat, *field, "--more", '{"temperature": null}')
    assert sorted(body["max_completion_tokens"] for body in server.asked) == [1030, 1128]
    assert all("max_tokens" not in body for body in server.asked)
    (said,) = asked()
    assert said.endswith("the server's own temperature, 1000 tokens to think, budgets as max_completion_tokens")


def test_answers_within_another_field_are_not_mixed(server: ModelServer) -> None:
    ruler(server)
    ruler(server, "--budget-field", "max_completion_tokens")
    labels = {p.template for p in predictions(FOLDER)}
    assert len(server.asked) == 4 and len(labels) == 2 and "base-text" in labels


def test_a_server_that_only_chats_is_told_with_the_option(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.reply = Raw(b'{"error": {"message": "not supported in the v1/completions endpoint"}}', 404)
    chats = "add --ask chat if its model only chats; else see that the address ends"
    for words in ((), ("--ask", "ids")):
        assert chats in refused(capsys, server, *words)
    shown = refused(capsys, server, "--ask", "chat")
    assert "see that the address ends" in shown and "--ask chat" not in shown


def test_the_beginning_of_an_answer_is_marked_in_its_message(server: ModelServer) -> None:
    """Mistral repeats that beginning in its answers, and DeepSeek does not."""
    one = ("--tasks", "niah_single_1", "--ask")
    ruler(server, *one, "chat-prefix")
    for server.repeats in (True, False):
        ruler(server, *one, "chat-marked-prefix", "--count", "1" if server.repeats else "2")
    fields, marked, _ = server.asked
    assert marked["messages"] == [*fields["messages"][:-1], {**fields["messages"][-1], "prefix": True}]
    assert marked["messages"][-1]["role"] == "assistant" and "continue_final_message" not in marked
    found = predictions(FOLDER)
    assert {(p.template, p.text.strip() == p.references[0]) for p in found} == {
        ("chat-prefix", True),
        ("chat-marked-prefix", True),
    }
    assert asked() == {
        "chat, the beginning of the answer as an assistant's message to be continued, the server's own template, "
        "which lengths leave out, temperature 0",
        "chat, the beginning of the answer as an assistant's message that is marked as a prefix, the server's own "
        "template, which lengths leave out, temperature 0",
    }
