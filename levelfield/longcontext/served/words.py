"""Says in one sentence what a server said, or why it could not be asked, never with the key in it.

    words(found, key)                    # "Incorrect API key provided: ***"
    refusal(address.url, found, key)     # "http://... refuses (401: ...): set the key in the environment variable ..."

Some servers refuse with the status of success: in an `error` in place of an answer, or by a web page to log in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from levelfield.longcontext.served.replies import whole

WORDS = 300  # characters of a server's message that are shown
SAID = ("error", "message", "detail")
CHAT = "/chat/completions"
ENDPOINTS = (CHAT, "/completions", "/models")
NOT_THERE = "see that the address ends as the server's does (often /v1), and that it knows --model and --ask"
TRANSIENT = (408, 409, 425, 429)
NOT_IMPLEMENTED = 501
PASSING = re.compile(r"overload|rate.?limit|time.?out|unavailable|server.?error|too many|try again|busy", re.IGNORECASE)
TOO_LONG = re.compile(
    r"context.{0,9}(length|size|window|limit)|maximum.{0,20}(tokens|length)|(prompt|input)( is)? too long",
    re.IGNORECASE,
)
TOO_LARGE = re.compile(r"^413\b|(request|payload|content|entity) too large", re.IGNORECASE)
PAGE = ("<!doctype", "<html")  # how a web page begins
TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)


def passing(status: int, said: str) -> bool:
    """Returns whether a refusal by this status and in these words may pass, so that asking again may help."""
    if status in TRANSIENT:  # a question of more tokens than an account may send in a minute is refused for ever
        return not TOO_LARGE.search(said)
    return status >= 500 and status != NOT_IMPLEMENTED and not too_long(said)


def too_long(said: str) -> bool:
    """Returns whether a server says that a prompt is longer than its context, or a request larger than it takes.

    said: its words, which may stand behind its status.
    """
    return bool(TOO_LONG.search(said) or TOO_LARGE.search(said))


def redacted(text: str, key: str | None) -> str:
    """Returns a text without the key, in whichever way it is written there."""
    for form in sorted({key, key.strip(), ascii(key)[1:-1]}, key=len, reverse=True) if key else ():
        text = text.replace(form, "***") if form else text
    return text


def printable(text: str) -> str:
    """Returns a text with "?" for each character that is none to print, by which a terminal could be told to do
    something. A blank, a tab and the end of a line are blanks."""
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text)


def one_line(text: str, key: str | None) -> str:
    """Returns a text in one line and without the key, as much of it as is shown."""
    return " ".join(printable(whole(redacted(text, key))).split())[:WORDS].rstrip(".")


def reason(error: Exception, key: str | None) -> str:
    """Returns why something could not be sent or read, in one line."""
    return one_line(str(error), key) or type(error).__name__


def words(found: Any, key: str | None) -> str:
    """Returns the message of a reply in one line, without the key, which some repeat."""
    try:
        said = found.json()
    except ValueError:
        said = TAGS.sub(" ", found.text) if is_page(found) else found.text
    return _said(said, key)


def _said(said: Any, key: str | None) -> str:
    for name in SAID:
        said = (said.get(name) or said) if isinstance(said, Mapping) else said
    return one_line(said if isinstance(said, str) else json.dumps(said), key) or "without a word"


def is_page(found: Any) -> bool:
    """Returns whether a reply is a web page."""
    return "html" in found.headers.get("content-type", "") or found.text.lstrip()[:9].lower().startswith(PAGE)


def no_answer(url: str, found: Any, key: str | None) -> str | None:
    """Returns why a reply with the status of success, which is no JSON, will never hold an answer; None where it may
    only be cut off."""
    if is_page(found):
        said = words(found, key)
        return f"{url} answers with a web page ({said}): give the address of its API, and a key where it wants one."
    if "event-stream" in found.headers.get("content-type", ""):
        return f"{url} sends its replies as a stream: add '\"stream\": false' to --more."
    return None


def refused_inside(said: Any, key: str | None) -> tuple[str, bool] | None:
    """Returns the message of a refusal that has the status of success, and whether it may pass; None for other replies.

    said: the JSON of the reply.
    """
    if not isinstance(said, Mapping) or said.get("choices") or not any(said.get(name) for name in SAID):
        return None
    inner = said["error"] if isinstance(said.get("error"), Mapping) else said
    code = inner.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        return _said(said, key), passing(code, _said(said, key))
    shown = _said(said, key)
    return shown, not too_long(shown) and any(PASSING.search(str(text)) for text in (code, inner.get("type"), shown))


def refusal(url: str, found: Any, key: str | None) -> str:
    """Returns in one sentence why the server refuses, and what may mend it."""
    if 300 <= found.status_code < 400:
        return _moved(url, found, key)
    said = words(found, key)
    if found.status_code == 404 and not found.request.url.path.endswith(CHAT):
        return f"{url} refuses (404: {said}): add --ask chat if its model only chats; else {NOT_THERE}."
    return f"{url} refuses ({found.status_code}: {said}): {remedy(found.status_code, said)}."


def remedy(status: int, said: str) -> str:
    """Returns what may mend a refusal by this status and in these words."""
    if status in (401, 403):
        return "set the key in the environment variable that --key-env names"
    if status == 404:
        return NOT_THERE
    if "max_completion_tokens" in said and not too_long(said):
        return (
            "give the --budget-field that it takes (max_tokens or max_completion_tokens), and where it refuses a "
            """temperature, too, add --more '{"temperature": null}'"""
        )
    if "temperature" in said:
        return """add --more '{"temperature": null}', or give the --temperature that it takes"""
    if too_long(f"{status}: {said}") or "context" in said or "maximum" in said or "too long" in said:
        return "give shorter --lengths, or start the server with a longer context"
    return "see that it knows --model and this way of asking (--ask), and leave out options that it does not know"


def _moved(url: str, found: Any, key: str | None) -> str:
    """Returns where a server sends on to, as the address to give where that is one of an endpoint."""
    place = urljoin(str(found.request.url), found.headers.get("location", ""))
    place = one_line(urlsplit(place)._replace(query="", fragment="").geturl(), key)
    ending = next((each for each in ENDPOINTS if place.rstrip("/").endswith(each)), "")
    address = place.rstrip("/").removesuffix(ending)
    if not ending or address == url:
        return f"{url} sends on to {place}: see that this is the address of its API, and whether it wants a key."
    return f"{url} sends on to {place}: give {address}."
