"""What a server says in place of an answer is passed on in its own words, without the key, and asked for again only
where that may help."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from fixtures_model_server import ModelServer, Raw, serving_model
from toy_reader import SINGLE, knows
from toy_served import ask, served

from levelfield.longcontext.answers import predictions, score
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import settled
from levelfield.longcontext.served import asking
from levelfield.longcontext.served.asking import Served
from levelfield.longcontext.served.client import Address, Client, Patience, Unanswered
from levelfield.longcontext.served.lengths import Approximate
from levelfield.longcontext.served.replies import Reply, read
from levelfield.longcontext.served.way import Way, Wrapping
from levelfield.report.longcontext import asked
from levelfield.ruler import Bytes, generate
from levelfield.spec import UserError

pytest.importorskip("httpx2", reason="httpx2 is not installed: pip install 'levelfield[serve]'")
KEY = "sk-this-is-the-key"
HTML = {"Content-Type": "text/html"}
ONE = Evaluation((SINGLE,), (700,), count=1)
BODY = {"model": "toy", "prompt": "x"}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serving_model(knows) as found:
        yield found


def client(server: ModelServer, key: str | None = KEY) -> Client:
    return Client(Address.of(server.url), key, Patience(tries=3, timeout=5.0, first=0.002, longest=0.02))


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Raw(b'{"error": {"message": "context length exceeded"}}'), r"\(context length exceeded\): give shorter"),
        (Raw(b'{"error": {"message": "no credit", "code": 402}}'), r"refuses \(no credit\)"),
        (Raw(b'{"object": "error", "message": "bad"}'), r"refuses \(bad\)"),
        (Raw(b'{"error": null, "detail": "No such model"}'), r"refuses \(No such model\)"),
        (Raw(f'{{"error": "key {KEY} is old"}}'.encode()), r"\(key \*\*\* is old\)"),
        (Raw(b"<html><script>1</script><b>Log in</b></html>", 200, HTML), r"web page \(Log in\): give the address"),
        (Raw(b"data: {}\n\n", 200, {"Content-Type": "text/event-stream"}), r'as a stream: add \'"stream": false\''),
    ],
)
def test_a_refusal_that_claims_success_is_said_and_not_asked_again(server: ModelServer, reply: Raw, said: str) -> None:
    server.reply = reply
    with client(server) as this, pytest.raises(UserError, match=said) as found:
        this.answer("completions", BODY)
    assert len(server.asked) == 1 and KEY not in str(found.value)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Raw(b'{"error": {"message": "upstream", "code": 502}}'), "the server answered: upstream"),
        (Raw(b'{"error": {"message": "wait", "type": "overloaded_error"}}'), "the server answered: wait"),
        (Raw(b'{"choices": []}'), "a reply without an answer"),
        (Raw(b'{"choices": [{"te'), "cut off"),
        (Raw(b"[" * 100_000), "cut off"),
    ],
)
def test_what_may_pass_is_asked_again(server: ModelServer, reply: Raw, said: str) -> None:
    server.reply = reply
    with client(server) as this, pytest.raises(Unanswered, match=said):
        this.answer("completions", BODY)
    assert len(server.asked) == 3


def test_parts_within_parts_without_end_are_no_answer(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many of them JSON can be read with depends on the version of Python."""
    parts: list[object] = []
    for _ in range(20_000):
        parts = [{"text": parts}]
    monkeypatch.setattr(Client, "_once", lambda *given: {"choices": [{"message": {"content": parts}}]})
    with client(server) as this, pytest.raises(Unanswered, match="too many parts"):
        this.answer("chat/completions", BODY)


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
CALL = {"id": "1", "type": "function", "function": {"name": "search", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": [THOUGHT, {"type": "text", "text": " 7"}, {"type": "text", "text": "3"}]}, " 73", "Hm."),
        ({"content": [{"type": "text", "text": "<think>So.</think> 7"}]}, " 7", "So."),
        ({"content": [{"type": "reasoning", "reasoning": "Hm."}, " 7", {"type": "image_url"}, 5]}, " 7", "Hm."),
        ({"content": [{"type": ["text"], "text": " 7"}, {"type": {}}]}, " 7", ""),
        ({"content": [THOUGHT], "reasoning_content": "Well."}, "", "Well."),
        ({"content": " 7", "reasoning": {"text": "Hm."}}, " 7", "Hm."),
        ({"content": " 7", "reasoning_content": ["H", "m."]}, " 7", "Hm."),
        ({"content": None, "tool_calls": [CALL]}, "", ""),
        ({"content": None, "refusal": "I cannot."}, "I cannot.", ""),
    ],
)
def test_a_whole_reply_without_a_plain_text_is_an_answer(
    server: ModelServer, message: object, text: str, reasoning: str
) -> None:
    server.reply = Raw(json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode())
    with client(server) as this:
        found = this.answer("chat/completions", BODY)
    assert (found.text, found.reasoning, len(server.asked)) == (text, reasoning, 1)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "the --budget-field that it"),
        ("'max_tokens' or 'max_completion_tokens' is too large. The maximum context length is 512.", "shorter --len"),
        ("'temperature' does not support 0 with this model.", "--more '{\"temperature\": null}'"),
    ],
)
def test_a_field_that_a_hosted_model_refuses_is_told_with_the_option(
    server: ModelServer, said: str, advice: str
) -> None:
    server.reply = Raw(json.dumps({"error": {"message": said}}).encode(), 400)
    with client(server) as this, pytest.raises(UserError) as found:
        this.answer("chat/completions", BODY)
    assert said.rstrip(".") in str(found.value) and advice in str(found.value)


def test_a_long_wait_is_told_once(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("levelfield.longcontext.served.client.time.sleep", lambda seconds: None)
    monkeypatch.setattr(Client, "_wait", lambda self: None)
    with client(server) as this:
        this.say = told.append
        for seconds in ("25", "1"):
            server.reply = Raw(b"{}", 429, {"Retry-After": seconds})
            with pytest.raises(Unanswered):
                this.answer("completions", BODY)
    assert told == ["The server asks to wait 25 seconds."]


@pytest.mark.parametrize(
    ("status", "said", "tries"),
    [
        (500, "the request exceeds the available context size. try increasing the context size", 1),
        (500, "This model's maximum context length is 4096 tokens.", 1),
        (503, "prompt is too long", 1),
        (501, "no such method", 1),
        (429, "Request too large for x on tokens per min (TPM): Limit 30000, Requested 40000.", 1),
        (500, "context deadline exceeded", 3),
        (503, "The input took too long", 3),
        (429, "Limit of 20 requests and a maximum of 1000 tokens a minute", 3),
        (500, "no context", 3),
    ],
)
def test_a_context_that_is_exceeded_is_no_outage(server: ModelServer, status: int, said: str, tries: int) -> None:
    kind = Unanswered if tries > 1 else UserError
    for reply in (Raw(json.dumps({"error": said}).encode(), status), Raw(_inside(said, status))):
        server.reply = reply
        server.asked.clear()
        with client(server) as this, pytest.raises(kind, match=r"context|too l|such|tokens"):
            this.answer("completions", BODY)
        assert len(server.asked) == tries


def _inside(said: str, code: int) -> bytes:
    return json.dumps({"error": {"message": said, "code": code, "type": "server_error"}}).encode()


def test_a_reply_without_an_end_is_left(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.faults = ["endless", "endless", "good"]
    with client(server) as this:
        assert this.answer("completions", BODY).text == ""
        server.faults = ["endless"]
        before = len(server.asked)
        with pytest.raises(Unanswered, match="a reply of more than 16 MB"):
            this.answer("completions", BODY)
        assert len(server.asked) - before == 3
        monkeypatch.setattr("levelfield.longcontext.served.client.MOST_BYTES", 0)
        with pytest.raises(Unanswered, match="a reply of more than 4 MB"):
            this.answer("completions", BODY | {"max_tokens": 4096})


def test_a_reply_that_never_gets_on_is_left_when_its_time_is_over(server: ModelServer) -> None:
    """Each of its bytes comes soon after the one before, and they never end."""
    server.faults = ["trickle"]
    patience = Patience(tries=2, timeout=0.2, first=0.002)
    with (
        Client(Address.of(server.url), None, patience) as this,
        pytest.raises(Unanswered, match=r"within 0\.2 seconds"),
    ):
        this.answer("completions", BODY)
    assert len(server.asked) == 2


def test_a_list_of_models_without_an_end_is_none(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levelfield.longcontext.served.client.MOST_BYTES", 1 << 20)
    server.listing = Raw(b'{"data": []}' + b" " * (1 << 21))
    with client(server) as this:
        assert this.models() == [] and "more than 1 MB" in this.listed().why


@pytest.mark.parametrize("seconds", [20, 1000])
def test_a_server_may_say_by_a_date_how_long_to_wait(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    held: list[float | None] = []
    monkeypatch.setattr(Client, "_later", lambda self, after, tried: held.append(after))
    when = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds + 1)
    server.reply = Raw(b"{}", 429, {"Retry-After": format_datetime(when, usegmt=True)})
    with client(server) as this, pytest.raises(Unanswered):
        this.answer("completions", BODY)
    assert len(held) == 2 and all(after is not None and seconds - 15 <= after <= seconds + 1 for after in held)


@pytest.mark.parametrize(
    "said", ["soon", "-5", "nan", "Thu, 01 Jan 1970 00:00:00 GMT", "Thu, 01 Jan 99999 00:00:00 GMT"]
)
def test_a_wait_that_cannot_be_read_is_none(server: ModelServer, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    held: list[float | None] = []
    monkeypatch.setattr(Client, "_later", lambda self, after, tried: held.append(after))
    server.reply = Raw(b"{}", 429, {"Retry-After": said})
    with client(server) as this, pytest.raises(Unanswered):
        this.answer("completions", BODY)
    assert held == [None, None]


def test_a_server_says_nothing_to_the_terminal_itself(server: ModelServer) -> None:
    """Characters that a terminal obeys, such as those that colour or erase lines, are shown as question marks."""
    server.reply = Raw(json.dumps({"error": "red\x1b[2J\x9b\x07 \n\xa0 tea"}).encode(), 418)
    with client(server) as this, pytest.raises(UserError, match=r"\(418: .*tea\)") as found:
        this.answer("completions", BODY)
    assert str(found.value).isprintable() and "red?[2J?? tea" in str(found.value)


@pytest.mark.parametrize("tokens", [10**9, 10**30, 10**400, -1, True, 5.0, "7"])
def test_counts_beyond_all_reason_are_none(tokens: object) -> None:
    usage = {"prompt_tokens": tokens, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": tokens}}
    found = read({"choices": [{"text": "a"}], "usage": usage})
    assert (found.prompt, found.made, found.thought) == (None, 5, None)


def test_where_a_server_sends_on_to_is_said_as_an_address(server: ModelServer) -> None:
    with client(server) as this:
        server.reply = Raw(status=307, headers={"Location": "https://other/v1/completions?token=secret"})
        with pytest.raises(UserError, match=r"to https://other/v1/completions: give https://other/v1\.$"):
            this.answer("completions", BODY)
        server.reply = Raw(status=302, headers={"Location": "/login"})
        with pytest.raises(UserError, match=r"/login: see that this is the address of its API"):
            this.answer("completions", BODY)


def test_half_a_character_in_a_reply_is_replaced(server: ModelServer, tmp_path: Path) -> None:
    """Tokens can end between the two halves of a character that JSON writes as a pair."""
    choice = '{"text": " \\ud83d 12 \\ud83d\\ude00", "finish_reason": "st\\ud83dop"}'
    server.reply = Raw(f'{{"choices": [{choice}]}}'.encode())
    with client(server) as this:
        served = Served(this, "toy", Way(), Approximate())
        evaluation = served.put(Evaluation((SINGLE,), (700,), count=2))
        asking.evaluate(served, [evaluation], tmp_path)
        found = predictions(tmp_path)
        assert [(p.text, p.finish) for p in found] == [(" \ufffd 12 \U0001f600", "st\ufffdop")] * 2
        asking.evaluate(served, [evaluation], tmp_path)
    assert len(server.asked) == 2
    server.reply = Raw(b'{"choices": [{"text": " 12 \xf0\x9f"}]}')
    with client(server) as this:
        assert this.answer("completions", BODY).text == " 12 \ufffd"
    message = {"content": "a", "reasoning_content": json.loads('"\\udfff"')}
    assert read({"choices": [{"message": message}]}).reasoning == "\ufffd"


@pytest.mark.parametrize("key", [f"{KEY}\r", f"{KEY}\n", f"{KEY}\x00"])
def test_a_key_that_cannot_be_sent_is_not_repeated(server: ModelServer, key: str) -> None:
    with client(server, key) as this, pytest.raises(UserError) as found:
        this.models()
    assert KEY not in str(found.value) and "***" in str(found.value)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://127.0.0.1:abc/v1", "Port could not be cast"),
        ("http://127.0.0.1:99999/v1", "Port out of range"),
        (f"http://{'a' * 64}.com/v1", "a part of the host's name is empty or too long"),
        ("http://a..b/v1", "a part of the host's name is empty or too long"),
        ("http://[::1/v1", "Invalid IPv6 URL"),
    ],
)
def test_an_address_that_can_be_none_is_refused(address: str, why: str) -> None:
    with pytest.raises(UserError, match=rf"is no address \({why}.*\): give one such as"):
        Address.of(address)


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/\x01v1", "http://\u2603\U0001f4a9.la/v1"])
def test_an_address_that_the_library_refuses_is_told_so(address: str) -> None:
    with Client(Address.of(address), None) as this, pytest.raises(UserError, match=r"is no address \("):
        this.models()


@pytest.mark.parametrize("address", ["http://localhost:8000/v1", "https://host_1.example./v1", "http://[::1]:80/v1"])
def test_usual_addresses_are_taken(address: str) -> None:
    assert Address.of(address).url == address


@pytest.mark.parametrize(
    ("listing", "why"),
    [
        (Raw(b"no gzip", 200, {"Content-Encoding": "gzip"}), "incorrect header check"),
        (Raw(b'{"error": "gone"}', 500), "500: gone"),
        (Raw(b"[1, 2]"), ""),
        (Raw(b'{"data": 5}'), ""),
        (Raw(b"<html>hi</html>", 200, HTML), ""),
        (Raw(b"[" * 100_000), ""),
    ],
)
def test_a_list_of_models_that_cannot_be_read_is_none(server: ModelServer, listing: Raw, why: str) -> None:
    server.listing = listing
    with client(server) as this:
        assert this.models() == [] and why in this.listed().why


@pytest.mark.parametrize(("key", "shown"), [(KEY, "***"), ("EMPTY", "EMPTY")])
def test_a_key_that_an_answer_repeats_is_not_stored(server: ModelServer, tmp_path: Path, key: str, shown: str) -> None:
    """As behind a proxy that shows what it was sent. A word that stands for no key is no secret."""
    server.says = lambda prompt: f"{knows(prompt)} Bearer {key}"
    server.ends, server.reasoning = lambda prompt: key, f"The key is {key}."
    with client(server, key) as this:
        asking.evaluate(model := Served(this, "toy", Way("chat"), Approximate()), [model.put(ONE)], tmp_path)
    (found,) = predictions(tmp_path)
    assert (found.text.split()[1:], found.reasoning, found.finish) == (["Bearer", shown], f"The key is {shown}.", shown)
    assert (key in (tmp_path / "predictions.jsonl").read_text()) == (shown == key)


NO_TEMPERATURE = '{"max_tokens": null, "max_completion_tokens": 4096, "temperature": null}'
SAME = '{"temperature": null, "max_completion_tokens":4096, "max_tokens": null}'


def test_the_same_requests_have_one_label_and_rows_say_their_temperature() -> None:
    way, other = Way("chat", more=NO_TEMPERATURE), Way("chat", temperature=1.0, more=SAME)
    assert way.label("") == other.label("") != Way("chat").label("")
    assert way.sentence("") == other.sentence("") and "the server's own temperature, with {" in way.sentence("")
    assert "temperature 0" not in way.sentence("") and way.sentence("").count("temperature") == 1
    assert Way("chat", temperature=1.0).label("") != Way("chat").label("") == "chat"
    assert Way("chat", temperature=1).label("") == Way("chat", temperature=1.0).label("")


def test_answers_under_a_label_of_earlier_versions_are_found(server: ModelServer, tmp_path: Path) -> None:
    """The labels are those that the version before gave; most of them are the same now."""
    same = {"chat-4acd61": Way("chat", thinking=500), "text-8151b4": Way(more='{"top_p": 0.9}')}
    assert [way.label("") for way in same.values()] == list(same)
    way = Way("chat", more=NO_TEMPERATURE)
    ways = {"chat-be14de": way, "chat-47a109": replace(way, temperature=1.0)}
    for label, way in ways.items():
        assert way.label("") != label == way.as_stored(["chat", label]).label("")
        assert way.as_stored(["chat"]) == way == way.as_stored([label, way.label("")])


def test_a_thought_that_the_template_opened_and_that_has_no_end_is_no_answer(
    server: ModelServer, tmp_path: Path
) -> None:
    """The model finds the number in its thought each time, and comes to an answer in half of the replies."""
    cut = {s.text for s in generate(SINGLE, 700, Bytes(), count=6) if s.index % 2}
    server.says = lambda prompt: f"I see{knows(prompt)}, wait" if prompt in cut else f"Found.</think>{knows(prompt)}"
    server.ends = lambda prompt: "length" if prompt in cut else "stop"
    evaluation = Evaluation((SINGLE,), (700,), count=6)
    for _ in range(2):
        assert ask(served(server, Way("chat")), tmp_path, evaluation) == [] and len(server.asked) == 6
        (scores,) = score(tmp_path)
        found = {r.get("metric"): r.get("value") for r in scores.rows if r.get("at") == "length=700"}
        assert (found["accuracy"], found["ended_thinking"]) == (50.0, 3)
    (scores,) = score(tmp_path)
    assert {failure.answered for failure in scores.failures} == {"(nothing: tokens ran out while it was thinking)"}
    assert {p.reasoning.startswith(("I see", "Found.")) for p in predictions(tmp_path)} == {True}
    (note,) = [note for note in asked(scores.rows) if "while the model was thinking" in note]
    assert ": 3 (3 of niah_single_1 at 700)." in note


def test_an_answer_that_is_cut_off_is_one_where_no_prompt_opens_a_thought(server: ModelServer, tmp_path: Path) -> None:
    server.says, server.ends = lambda prompt: f"<think>Hm.</think>{knows(prompt)}", lambda prompt: "length"
    ask(served(server, Way("chat")), tmp_path, Evaluation((SINGLE,), (700,), count=2))
    server.says = lambda prompt: f"{knows(prompt)} and so on"
    ask(served(server, Way("chat")), tmp_path, Evaluation((SINGLE,), (700,), count=4))
    assert {r.get("value") for r in score(tmp_path)[0].rows if r.get("metric") == "accuracy"} == {100.0}


def test_a_template_that_opens_a_thought_is_known_at_once(server: ModelServer, tmp_path: Path) -> None:
    sample = next(generate(SINGLE, 700, Bytes(), count=1))
    question = asking.ServedQuestion(sample, SINGLE, "key", Wrapping("own", "<user>", "</user><think>\n"))
    found = served(server).prediction(question, Reply("I see 1234567, wait", finish="length"))
    (one,) = settled([found])
    assert (one.text, one.reasoning, one.ended_thinking) == ("", "I see 1234567, wait", True)
