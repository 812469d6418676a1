"""Questions that a server refuses alone, withholds or cuts off, and a full disk, cost no other answer."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from fixtures_model_server import ModelServer, Raw
from toy_reader import SINGLE, knows
from toy_served import EVALUATION, ask, served

from levelfield.longcontext.answers import left_out, score, stored, with_left_out
from levelfield.longcontext.cut_off import cut_lengths
from levelfield.longcontext.predictions import Prediction
from levelfield.longcontext.served import asking
from levelfield.longcontext.served.client import Refusal
from levelfield.longcontext.served.lengths import Approximate
from levelfield.longcontext.served.way import By, Way
from levelfield.report.longcontext import asked
from levelfield.ruler import Bytes, Needle, generate
from levelfield.spec import UserError

pytest.importorskip("httpx2", reason="httpx2 is not installed: pip install 'levelfield[serve]'")


@pytest.mark.parametrize("by", ["text", "ids", "chat", "chat-prefix"])
@pytest.mark.parametrize("at_once", [1, 4])
def test_a_question_that_is_refused_alone_is_left_out(
    server: ModelServer, tmp_path: Path, by: By, at_once: int
) -> None:
    """The first one that is asked is among them, so that nothing was answered before."""
    texts = sorted(s.text for s in generate(SINGLE, 700, Bytes(), count=12))
    keys = {text.split()[-7] for text in (texts[0], texts[5])}  # of needles, which are the same at both lengths
    assert len(keys) == 2
    server.refuses = lambda prompt: not keys.isdisjoint(prompt.rpartition(" magic number for ")[2].split())
    for _ in range(2):  # the second time, nothing but what is refused is left
        left = ask(served(server, Way(by)), tmp_path, at_once=at_once)
        assert len(left) == 4 and len(stored(tmp_path)) == 20
        assert {one.why for one in left} == {
            "The server refuses this question for good, and answers others (400: filtered)."
        }
        assert not any(one.unanswered for one in left)
        rows = {(r.get("at"), r.get("status"), r.get("n")) for r in score(tmp_path)[0].rows}
        assert {("length=700", "partial", 10), ("length=1000", "partial", 10)} <= rows
    twice = {prompt for prompt, n in Counter(server.answered).items() if n > 1}
    assert all(prompt.startswith("Which number comes") for prompt in twice), "what shows that others are answered"
    server.refuses = lambda prompt: False
    assert ask(served(server, Way(by)), tmp_path) == []


def test_a_server_that_refuses_every_question_is_told_so_soon(server: ModelServer, tmp_path: Path) -> None:
    server.refuses = lambda prompt: len(prompt) > 100  # as where the context is too short
    with pytest.raises(UserError, match=r"refuses \(400: filtered\): see that it knows"):
        ask(served(server), tmp_path)
    assert len(server.asked) < 24
    with pytest.raises(UserError, match=r"refuses \(400: filtered\)"):
        ask(served(server), tmp_path, replace(EVALUATION, lengths=(700,), count=2))


def test_a_server_that_refuses_everything_from_some_time_on_is_left(server: ModelServer, tmp_path: Path) -> None:
    server.refuses = lambda prompt: len(server.answered) >= 10
    with pytest.raises(UserError, match=r"refuses \(400: filtered\)"):
        ask(served(server), tmp_path, at_once=1)
    assert len(stored(tmp_path)) == len(set(server.answered)) >= 10
    assert len(server.asked) <= 10 + 2 * 4


@pytest.mark.parametrize(
    ("status", "said"),
    [(413, ""), (413, "<html><h1>413 Request Entity Too Large</h1></html>"), (400, "Payload Too Large")],
)
def test_a_request_that_is_too_large_is_a_prompt_that_is_too_long(server: ModelServer, status: int, said: str) -> None:
    """So a gateway's limit costs three questions of a task and length, and shorter ones mend it."""
    server.reply = Raw(said.encode(), status)
    with served(server).client as client, pytest.raises(Refusal, match="give shorter --lengths") as refused:
        client.answer("completions", {"model": "toy", "prompt": "x"})
    assert refused.value.too_long


@pytest.mark.parametrize("text", ["", " 12", None])
def test_what_a_content_filter_withholds_is_no_answer_of_the_model(
    server: ModelServer, tmp_path: Path, text: str | None
) -> None:
    """It is paid for, so it is not asked again; RULER's score is that of the answers that the model gave."""
    bad = [s.text for s in generate(SINGLE, 700, Bytes(), count=12)][:3]
    server.says = lambda prompt: text if prompt in bad else knows(prompt)
    server.ends = lambda prompt: "content_filter" if prompt in bad else "stop"
    for _ in range(2):
        assert ask(served(server), tmp_path) == []
        assert len(server.asked) == len(stored(tmp_path)) == 24
    (scores,) = score(tmp_path)
    found = {(r.get("at"), r.get("metric")): r for r in scores.rows}
    cell = found["length=700", "accuracy"]
    assert (cell.get("value"), cell.get("n"), cell.get("status")) == (100.0, 9, "partial")
    assert found["length=700", "withheld"].get("value") == 3 and ("length=1000", "withheld") not in found
    assert {one.index for one in with_left_out(tmp_path)[1]} == {0, 1, 2} and scores.failures == []
    (note,) = [note for note in asked(scores.rows) if "filter" in note]
    assert ": 3 (3 of niah_single_1 at 700)." in note


def test_a_filter_that_withholds_everything_is_said(server: ModelServer, tmp_path: Path) -> None:
    server.ends = lambda prompt: "content_filter"
    with pytest.raises(UserError, match=r"No question has an answer\. The server's content filter withheld"):
        ask(served(server), tmp_path)


def statuses(folder: Path) -> dict[str, tuple[int, str]]:
    """Returns the number of answers and the status of each length."""
    cells = [r for r in score(folder)[0].rows if r.get("metric") == "accuracy" and "depth" not in r.get("at", "")]
    return {r.get("at", ""): (r.get("n", 0), r.get("status", "")) for r in cells}


def test_a_call_that_ends_early_says_of_what_it_began_which_questions_have_no_answer(
    server: ModelServer, tmp_path: Path
) -> None:
    """Of a length that it did not come to, what was left out before stays."""
    samples = [sample for length in EVALUATION.lengths for sample in generate(SINGLE, length, Bytes(), count=12)]
    bad = {samples[0].text, samples[-1].text}
    server.refuses = lambda prompt: prompt in bad
    ask(served(server), tmp_path, replace(EVALUATION, lengths=(1000,)))
    assert statuses(tmp_path) == {"length=1000": (11, "partial")}
    server.faults = [*["good"] * (len(server.asked) + 6), *["drop"] * 1000]
    with pytest.raises(UserError, match="run the same command again to continue, or with --rescore"):
        ask(served(server, tries=2), tmp_path, at_once=1)
    answered = len(stored(tmp_path)) - 11
    assert 0 < answered < 11
    assert statuses(tmp_path) == {"length=1000": (11, "partial"), "length=700": (answered, "partial")}
    left = left_out(tmp_path)
    assert len(left) == 13 - answered and len({one.place for one in left}) == len(left)
    server.faults = ["good"]
    assert len(ask(served(server), tmp_path)) == len(left_out(tmp_path)) == 2
    assert {n for n, status in statuses(tmp_path).values() if status == "partial"} == {11}


def test_a_length_that_a_call_completes_is_whole_though_it_ends_early_at_the_next(
    server: ModelServer, tmp_path: Path
) -> None:
    bad = next(generate(SINGLE, 700, Bytes(), count=1)).text
    server.refuses = lambda prompt: prompt == bad
    ask(served(server), tmp_path, replace(EVALUATION, lengths=(700,)))
    server.refuses = lambda prompt: False
    seen = []

    def interrupted(found: Prediction, new: bool) -> None:
        seen.append(found)
        if found.length == 1000:
            raise KeyboardInterrupt

    this = served(server)
    with pytest.raises(KeyboardInterrupt):
        asking.evaluate(this, [this.put(EVALUATION)], tmp_path, 1, interrupted)
    found = statuses(tmp_path)
    assert found["length=700"] == (12, "ok") and found["length=1000"][1] == "partial"


def test_a_disk_without_room_loses_no_answer(
    server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as there is room for those that are on their way, nothing more is asked and all of them are stored."""
    usage = asking.shutil.disk_usage(tmp_path)
    free = lambda path: usage._replace(free=max(0, 400_000 - 40_000 * len(stored(tmp_path))))  # noqa: E731
    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(asking.shutil, "disk_usage", free)
        ask(served(server), tmp_path, at_once=2)
    assert 0 < len(stored(tmp_path)) == len(server.answered) < 24
    ask(served(server), tmp_path)
    assert set(Counter(server.answered).values()) == {1} and len(stored(tmp_path)) == 24


def test_an_answer_without_room_costs_no_other(
    server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, tried = asking.Answers.append, count()

    def full_once(self: asking.Answers, one: Prediction) -> None:
        if next(tried) == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, one)

    server.faults = ["slow"]
    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(asking.Answers, "append", full_once)
        ask(served(server), tmp_path)
    assert 5 <= len(stored(tmp_path)) == len(server.answered) - 1 < 23


KEPT = 600  # tokens that a server reads at most


@pytest.mark.parametrize(
    ("lengths", "counts", "cut"),
    [
        ((700, 1400, 2800), lambda tokens: min(KEPT, tokens), {1400, 2800}),
        ((700, 1400, 2800), lambda tokens: min(1500, tokens), {2800}),
        ((1400,), lambda tokens: KEPT, {1400}),
        ((700, 1400, 2800), lambda tokens: 3 * tokens // 4 + 40, set()),  # a tokenizer with longer words
        ((700, 1400, 2800), lambda tokens: 5 * tokens // 4, set()),
        ((700, 1400), lambda tokens: 900 + tokens, set()),  # a system prompt
    ],
)
def test_a_server_that_cuts_off_is_noticed_by_an_approximation_too(
    lengths: tuple[int, ...], counts: Callable[[int], int], cut: set[int]
) -> None:
    found = []
    for length in lengths:
        for index, sample in enumerate(generate(Needle(haystack="needles"), length, Approximate(), count=4)):
            one = Prediction.of(sample, Needle(haystack="needles"), text="", made=0, status="ok")
            one = replace(one, tokens=one.tokens - index)
            found.append(replace(one, counted={"prompt": counts(one.tokens)}))
    assert cut_lengths(found, exact=False) == cut
