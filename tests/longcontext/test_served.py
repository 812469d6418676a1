"""Asking a model behind a server: nothing is lost, nothing is asked twice, and what was asked is said.

The server is our own and fails in every way that it can (`fixtures_model_server.py`); the model behind it answers by a
function of the prompt. What is stored is compared with what the same model gives without a server.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from fixtures_model_server import MANNERS, Fault, ModelServer, prompt_of, serving_model
from paced import wait_for
from toy_reader import SINGLE, asked, knows
from toy_served import EVALUATION, ask, served

from levelfield.longcontext.answers import predictions, score, stored
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import Prediction
from levelfield.longcontext.served import asking
from levelfield.longcontext.served.client import Address, Client, Unanswered
from levelfield.longcontext.served.crew import Ahead
from levelfield.longcontext.served.lengths import Approximate, ServerTokenizer, tokenizer_for
from levelfield.longcontext.served.way import By, Way
from levelfield.ruler import Bytes, Needle, generate, named
from levelfield.spec import UserError

pytest.importorskip("httpx2", reason="httpx2 is not installed: pip install 'levelfield[serve]'")


def answers(folder: Path) -> dict[tuple[str, int, int], str]:
    return {(p.task, p.length, p.index): p.text.strip() for p in predictions(folder)}


@pytest.mark.parametrize("by", ["text", "ids", "chat", "chat-prefix", "chat-marked-prefix"])
def test_every_way_of_asking_finds_what_the_model_knows(server: ModelServer, tmp_path: Path, by: By) -> None:
    ask(served(server, Way(by)), tmp_path / "served")
    asked(knows, tmp_path / "here", EVALUATION)
    here = {place: text.split()[0] for place, text in answers(tmp_path / "here").items()}
    assert answers(tmp_path / "served") == here
    assert len(here) == 24


def test_a_prompt_is_the_one_that_a_model_here_reads(server: ModelServer, tmp_path: Path) -> None:
    ask(served(server, Way("text")), tmp_path)
    ask(served(server, Way("ids")), tmp_path)
    samples = [s for n in EVALUATION.lengths for s in generate(SINGLE, n, Bytes(), count=12)]
    assert sorted(prompt_of(body) for body in server.asked) == sorted([s.text for s in samples] * 2)
    assert {body["max_tokens"] for body in server.asked} == {128}
    assert {body["temperature"] for body in server.asked} == {0.0}


def test_a_chat_parts_the_question_from_the_beginning_of_the_answer(server: ModelServer, tmp_path: Path) -> None:
    ask(served(server, Way("chat-prefix", system="Be brief.")), tmp_path, replace(EVALUATION, count=1))
    system, user, assistant = server.asked[0]["messages"]
    assert (system["role"], system["content"]) == ("system", "Be brief.")
    assert user["content"].startswith("A special magic number is hidden")
    assert user["content"].endswith("mentioned in the provided text?")
    assert assistant["role"] == "assistant"
    assert assistant["content"].startswith("The special magic number for ") and assistant["content"].endswith(" is")
    assert server.asked[0]["continue_final_message"] is True
    server.asked.clear()
    ask(served(server, Way("chat")), tmp_path, replace(EVALUATION, count=1))
    (only,) = server.asked[0]["messages"]
    assert only["content"].endswith(" mentioned in the provided text is")


@pytest.mark.parametrize("fault", MANNERS)
def test_whatever_fails_once_is_asked_again_and_stored_once(server: ModelServer, tmp_path: Path, fault: Fault) -> None:
    server.faults = ["good", fault, "good"]
    assert ask(served(server), tmp_path) == []
    lines = stored(tmp_path)
    assert len(lines) == len({p.key for p in lines}) == 24
    assert all(p.text.strip() in p.references for p in lines)


def test_a_reply_that_comes_too_late_is_asked_for_again(server: ModelServer, tmp_path: Path) -> None:
    server.faults = ["late", *["good"] * 30]
    ask(served(server, timeout=2.0), tmp_path)
    assert len(answers(tmp_path)) == len(stored(tmp_path)) == 24
    assert len(server.asked) == 25


def test_everything_at_once_loses_nothing_and_doubles_nothing(server: ModelServer, tmp_path: Path) -> None:
    server.faults = [*MANNERS, "good", "wrong counts", "no counts"]
    ask(served(server), tmp_path / "bad", at_once=8)
    server.faults = ["good"]
    ask(served(server), tmp_path / "good")
    assert answers(tmp_path / "bad") == answers(tmp_path / "good")
    assert len(stored(tmp_path / "bad")) == 24


def test_a_storm_of_refusals_holds_all_threads(server: ModelServer, tmp_path: Path) -> None:
    server.storm = 0.2  # ten waits as long as it tells, where QUICK allows twelve tries
    ask(served(server), tmp_path, at_once=8)
    assert len(answers(tmp_path)) == 24
    refused = len(server.asked) - 24
    assert 4 <= refused <= 8 * 0.2 / 0.02 + 8  # each thread waits as long as it was told, and not less


def test_at_most_so_many_are_on_their_way(server: ModelServer, tmp_path: Path) -> None:
    server.faults = ["slow"]
    ask(served(server), tmp_path, at_once=3)
    assert server.most_at_once == 3


def test_what_is_stored_is_not_asked_again(server: ModelServer, tmp_path: Path) -> None:
    ask(served(server), tmp_path, replace(EVALUATION, count=5))
    ask(served(server), tmp_path)
    assert len(server.asked) == 24
    assert set(Counter(server.answered).values()) == {1}
    ask(served(server), tmp_path)
    assert len(server.asked) == 24
    ask(served(server, Way("text", temperature=0.5)), tmp_path)
    assert len(server.asked) == 48, "another temperature is another question"


def test_counts_that_cannot_be_are_left_out(server: ModelServer, tmp_path: Path) -> None:
    server.faults = ["wrong counts", "good", "no counts"]
    ask(served(server), tmp_path, at_once=1)
    found = predictions(tmp_path)
    assert Counter(len(p.counted) for p in found) == {0: 16, 2: 8}
    assert {p.made for p in found} == {8}, "a space and seven digits, by the tokenizer here"
    assert all(p.counted["prompt"] == p.tokens for p in found if p.counted)


def test_a_server_that_stops_answering_is_left_and_continued_with(server: ModelServer, tmp_path: Path) -> None:
    server.faults = [*["good"] * 10, *["drop"] * 1000]
    with pytest.raises(UserError, match=r"does not answer any more .* run the same command again"):
        ask(served(server, tries=2), tmp_path)
    before = answers(tmp_path)
    assert len(before) == 10
    server.faults, old = ["good"], list(server.answered)
    ask(served(server), tmp_path)
    assert len(answers(tmp_path)) == 24
    assert not set(old) & set(server.answered[len(old) :]), "nothing stored is asked again"


def test_a_question_that_is_never_answered_leaves_a_mark(server: ModelServer, tmp_path: Path) -> None:
    bad = next(generate(SINGLE, 700, Bytes(), count=1)).text

    def says(prompt: str) -> str:
        if prompt == bad:
            raise RuntimeError
        return knows(prompt)

    server.says = says
    (left,) = ask(served(server, tries=2), tmp_path)
    assert (left.task, left.length, left.index) == ("niah_single_1", 700, 0)
    assert "did not answer" in left.why
    rows = score(tmp_path)[0].rows
    assert {(r.get("at"), r.get("status"), r.get("n")) for r in rows if "depth" not in r.get("at", "")} >= {
        ("length=700", "partial", 11),
        ("length=1000", "ok", 12),
    }
    server.says = knows
    assert ask(served(server), tmp_path) == []
    assert {r.get("status") for r in score(tmp_path)[0].rows} == {"ok"}


@pytest.mark.parametrize(
    ("more", "way", "said"),
    [
        ({"key": "secret"}, Way(), r"refuses \(401: Incorrect API key provided\): set the key"),
        ({"chat": False}, Way("chat"), r"refuses \(404: Not Found\).*--ask"),
        ({"ids": False}, Way("ids"), r"refuses \(422: prompt must be a string\).*--ask"),
    ],
)
def test_a_refusal_is_said_at_once_in_the_servers_words(
    tmp_path: Path, more: dict[str, Any], way: Way, said: str
) -> None:
    with serving_model(knows, **more) as server:
        with pytest.raises(UserError, match=said):
            ask(served(server, way), tmp_path)
        assert len(server.asked) <= 16, "those that were on their way, and a short one after each"


def test_a_server_that_is_not_there_is_said_so() -> None:
    client = Client(Address.of("http://127.0.0.1:9/v1"), None)
    with client, pytest.raises(UserError, match=r"No server answers at http://127\.0\.0\.1:9/v1"):
        client.models()


@pytest.mark.parametrize("address", ["http://me:secret@host:8000/v1", "https://host:8000/v1?api-key=secret"])
def test_a_key_in_the_address_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(UserError, match="--key-env") as found:
        Address.of(address)
    assert "secret" not in str(found.value) and "://host:8000/v1," in str(found.value)


def test_reasoning_is_parted_from_the_answer_and_counted(server: ModelServer, tmp_path: Path) -> None:
    server.reasoning = "The text says so."
    ask(served(server, Way("chat", thinking=100)), tmp_path / "field", replace(EVALUATION, count=2))
    assert {body["max_tokens"] for body in server.asked} == {228}
    assert {(p.reasoning, p.counted["thought"]) for p in predictions(tmp_path / "field")} == {("The text says so.", 17)}
    server.reasoning, server.says = "", lambda prompt: f"<think>1234567?</think>{knows(prompt)}"
    ask(served(server, Way("chat", thinking=100)), tmp_path / "inline", replace(EVALUATION, count=2))
    assert answers(tmp_path / "inline") == answers(tmp_path / "field")
    server.says = lambda prompt: f"<think>{knows(prompt)} it may be, or"
    ask(served(server, Way("chat", thinking=100)), tmp_path / "endless", replace(EVALUATION, count=2))
    assert {p.text for p in predictions(tmp_path / "endless")} == {""}, "what is only thought is no answer"


def test_ways_are_never_averaged_and_rows_say_them(server: ModelServer, tmp_path: Path) -> None:
    few = replace(EVALUATION, count=2)
    for way in (Way("text"), Way("chat"), Way("chat", system="Be brief.")):
        this = served(server, way)
        ask(this, tmp_path, few)
        asking.note_ways(tmp_path, {this.put(few).template: this.sentence("base")})
    scores = score(tmp_path)
    assert len(scores) == 3
    assert len({row.get("asked") for each in scores for row in each.rows}) == 3
    assert {len({row.get("asked") for row in each.rows}) for each in scores} == {1}
    assert any('system prompt "Be brief."' in row.get("asked", "") for row in scores[2].rows)
    unknown = ["own template, which lengths leave out" in each.rows[0].get("asked", "") for each in scores]
    assert unknown == [False, True, True]


def test_rows_say_at_which_length_the_server_may_have_cut_prompts_off(server: ModelServer, tmp_path: Path) -> None:
    this = served(server)
    ask(this, tmp_path, replace(EVALUATION, count=2))
    path = tmp_path / "predictions.jsonl"
    short = [p | {"counted": {"prompt": 520}} for p in map(json.loads, path.read_text().splitlines())]
    path.write_text("".join(json.dumps(p) + "\n" for p in short))  # of prompts of 572 and 872 tokens at most
    for said, cut in ((this.sentence("base"), {"length=1000"}), ("asked; lengths are approximate", {"length=1000"})):
        asking.note_ways(tmp_path, {this.put(EVALUATION).template: said})
        (scores,) = score(tmp_path)
        found = {row.get("at", "").partition(",")[0] for row in scores.rows if "cut off" in row.get("asked", "")}
        assert found == cut and all(row.get("asked", "").startswith(said) for row in scores.rows)


def test_an_approximation_is_near_and_is_marked(server: ModelServer, tmp_path: Path) -> None:
    this = served(server, tokenizer=Approximate())
    ask(this, tmp_path, Evaluation((SINGLE, Needle(haystack="needles")), (512,), count=3))
    assert this.sentence("base").endswith("; lengths are approximate")
    assert len(answers(tmp_path)) == 6
    text = "One of the special magic numbers for tense-harbor is: 7319284."
    assert 12 <= len(Approximate().encode(text)) <= 24


@pytest.mark.parametrize("task", ["niah_single_1", "niah_multikey_2", "vt", "cwe", "fwe", "niah_multivalue"])
def test_lengths_by_the_servers_tokenizer_are_exact(server: ModelServer, task: str) -> None:
    """The server's tokenizer here has one id for three letters, of which an estimate knows nothing."""
    server.tokenize = lambda text: [len(text[i : i + 3]) for i in range(0, len(text), 3)]
    found = ServerTokenizer.found(served(server).client, "toy")
    assert found is not None
    for sample in generate(named(task), 2048, found, count=3):
        assert len(sample.ids) == -(-len(sample.text) // 3)
        assert 0 <= 2048 - sample.answer_tokens - len(sample.ids) <= 16


@pytest.mark.parametrize("word", ["prompt", "content"])
def test_a_server_that_loads_its_model_is_waited_for(server: ModelServer, word: str) -> None:
    server.tokenize, server.word, server.loading = lambda text: list(text.encode()), word, 9
    assert isinstance(tokenizer_for(None, "toy", served(server).client), ServerTokenizer)


@pytest.mark.parametrize("ids", [[], [-1], [True], [1 << 31]])
def test_without_a_tokenize_endpoint_there_is_an_approximation(server: ModelServer, ids: list[int]) -> None:
    """What gives numbers that can be no ids is none."""
    server.tokenize = (lambda text: ids) if ids else None
    client = served(server).client
    assert isinstance(tokenizer_for(None, "toy", client), Approximate)
    with pytest.raises(UserError, match="no tokenize endpoint"):
        tokenizer_for("server", "toy", client)


def test_prompts_with_a_common_beginning_follow_one_another(server: ModelServer, tmp_path: Path) -> None:
    """A cache of prefixes then holds the haystack up to the needle; sent by index it would hold less of it."""
    ask(served(server), tmp_path, Evaluation((SINGLE,), (3000,), count=12), at_once=1)

    def same(texts: tuple[str, str]) -> int:
        return next(i for i, (a, b) in enumerate(zip(*texts)) if a != b)

    by_index = [s.text for s in generate(SINGLE, 3000, Bytes(), count=12)]
    sent = [prompt_of(body) for body in server.asked]
    assert sum(map(same, pairwise(sent))) > 1.2 * sum(map(same, pairwise(by_index)))


def test_ctrl_c_keeps_what_was_answered(server: ModelServer, tmp_path: Path) -> None:
    seen = []

    def interrupted(found: Prediction, new: bool) -> None:
        seen.append(found)
        if len(seen) == 5:
            raise KeyboardInterrupt

    this = served(server)
    with pytest.raises(KeyboardInterrupt):
        asking.evaluate(this, [this.put(EVALUATION)], tmp_path, 4, interrupted)
    kept = {p.key for p in stored(tmp_path)}
    assert 5 <= len(kept) < 24
    again: list[Prediction] = []
    asking.evaluate(this, [this.put(EVALUATION)], tmp_path, 4, lambda found, new: again.append(found) if new else None)
    assert len(again) == 24 - len(kept)
    assert not kept & {p.key for p in again}


def test_a_field_that_is_null_is_left_out(server: ModelServer, tmp_path: Path) -> None:
    ask(served(server, Way("text", more='{"temperature": null}')), tmp_path, replace(EVALUATION, count=1))
    assert all("temperature" not in body and body["max_tokens"] == 128 for body in server.asked)


def test_what_is_generated_ahead_comes_in_order_and_its_errors_arrive() -> None:
    def items() -> Iterator[int]:
        yield from range(5)
        raise UserError("no sixth")

    found = []
    with Ahead(items()) as numbers, pytest.raises(UserError, match="no sixth"):
        for number in numbers:
            found += [] if number is None else [number]
    assert found == list(range(5))
    at_work = []

    def endless_items() -> Iterator[int]:
        at_work.append(threading.current_thread())
        yield from count()

    with Ahead(endless_items()) as endless:
        assert next(number for number in endless if number is not None) == 0
    at_work[0].join(timeout=60)
    assert not at_work[0].is_alive(), "the thread ends when nobody reads"


def test_answers_are_stored_while_the_next_questions_are_made(server: ModelServer, tmp_path: Path) -> None:
    class Late(Evaluation):
        """Makes its prompts when the answers to all others are stored, or after a minute."""

        def groups(self, tokenizer: Any, on_skipped: Any = None) -> Iterator[Any]:
            until = time.monotonic() + 60
            while len(stored(tmp_path)) < 12 and time.monotonic() < until:
                time.sleep(0.01)
            in_time.append(time.monotonic() < until)
            yield from super().groups(tokenizer, on_skipped)

    in_time: list[bool] = []
    this = served(server)
    first = this.put(replace(EVALUATION, lengths=(700,)))
    asking.evaluate(this, [first, Late(**vars(replace(first, lengths=(1000,))))], tmp_path)
    assert in_time == [True] and len(stored(tmp_path)) == 24


def test_unanswered_says_why(server: ModelServer) -> None:
    server.faults = ["503"]
    with pytest.raises(Unanswered, match="the server answered 503: not now"):
        served(server, tries=2).client.answer("completions", {"prompt": "x"})


KILLED = """
from pathlib import Path
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.served.asking import Served, evaluate
from levelfield.longcontext.served.crew import Ahead
from levelfield.longcontext.served.client import Address, Client
from levelfield.longcontext.served.way import Way
from levelfield.ruler import Bytes, Needle
this = Served(Client(Address.of({url!r}), None), "toy", Way(), Bytes())
evaluate(this, [this.put(Evaluation((Needle(haystack="noise"),), (700, 1000), count=12))], Path({folder!r}), 4)
"""


def test_killed_in_the_middle_it_goes_on_where_it_was(server: ModelServer, tmp_path: Path) -> None:
    server.faults = [*["slow", "429", "slow", "cut"] * 4, *["held"] * 100]
    script = KILLED.format(url=server.url, folder=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", script])
    file = tmp_path / "predictions.jsonl"
    wait_for(lambda: server.at_once == 4 and file.exists() and b"\n" in file.read_bytes())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    server.faults = ["good"]
    server.let_go.set()
    kept = {p.key for p in stored(tmp_path)}
    assert 0 < len(kept) < 24
    assert next(r.get("status") for r in score(tmp_path)[0].rows if r.get("at") == "length=700") == "partial"
    time.sleep(0.1)  # what was on its way comes to its end
    old = len(server.asked)
    this = served(server)
    ask(this, tmp_path)
    lines = stored(tmp_path)
    assert len(lines) == len({p.key for p in lines}) == 24
    prompts = {p.key: (p.length, p.index) for p in lines}
    samples = {s.text: (s.length, s.index) for n in EVALUATION.lengths for s in generate(SINGLE, n, Bytes(), count=12)}
    again = {samples[prompt_of(body)] for body in server.asked[old:]}
    assert not again & {prompts[key] for key in kept}, "nothing stored is asked again"
    assert {r.get("status") for r in score(tmp_path)[0].rows} == {"ok"}
    assert json.loads((tmp_path / "predictions.jsonl").read_text().splitlines()[0])["finish"] == "stop"
