"""Sends requests to an OpenAI-compatible server, and waits and tries again where that may help.

    with Client(Address.of("http://127.0.0.1:8000/v1"), key=None) as client:
        client.answer("completions", {"model": "NAME", "prompt": "1, 2, 3,", "max_tokens": 8}).text

It is one client for all threads. A refusal by 408, 409, 425, 429 or 5xx, a lost connection, a time-out and a reply that
is cut off are tried again, each time after a longer pause. What a server says in Retry-After holds for all threads. Any
other refusal is a `UserError` with the server's own words (`words`), a `Refusal` where it may be of one question. The
key goes into the header of requests and nowhere else.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Any, NamedTuple, TypeVar, final
from urllib.parse import urlsplit

from levelfield.files import abridged
from levelfield.longcontext.served.replies import BrokenReply, Reply, read
from levelfield.longcontext.served.way import most_tokens
from levelfield.longcontext.served.words import (
    no_answer,
    passing,
    printable,
    reason,
    redacted,
    refusal,
    refused_inside,
    remedy,
    too_long,
    words,
)
from levelfield.spec import UserError

T = TypeVar("T")
HERE = ("localhost", "127.0.0.1", "::1")
LONG_HOLD_S = 5.0  # of which is told
LONGEST_HOLD_S = 600.0  # that a server's Retry-After may ask for
MOST_BYTES = 1 << 24  # of any reply, in addition to what its request may ask for:
BYTES_OF_PROMPT, BYTES_OF_TOKEN = 16, 1024  # for a byte of the request and for a token, with what --more may add to it
SHORTEST_KEY = 8  # letters of one that is redacted in answers, so that a word such as "EMPTY" may be in them
ENCODED = ("content-encoding", "content-length", "transfer-encoding")  # headers of a body that is not decoded


class Address(NamedTuple):
    """The address of a server, without a slash at its end. here: whether it is this machine."""

    url: str
    here: bool

    @staticmethod
    def of(text: str) -> Address:
        """Reads an address. Raises UserError for one that has no host, or a key in it."""
        try:
            parts = urlsplit(text)
            host = parts.hostname or ""
            _ = parts.port, host.encode("idna")  # or a ValueError
        except ValueError as error:
            raise no_address(text, error) from error
        if parts.username or parts.password or parts.query or parts.fragment:
            shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            raise UserError(
                f"Give the address alone, {shown}, and a key in an environment variable (--key-env), so that it is "
                "neither stored nor shown."
            )
        if parts.scheme not in ("http", "https") or not host:
            raise UserError(f"{text} is no address of a server: give one such as http://127.0.0.1:8000/v1.")
        url = text.rstrip("/")
        for endpoint in ("/chat/completions", "/completions"):
            if url.endswith(endpoint):
                raise UserError(f"{url} is the address of one endpoint: give {url.removesuffix(endpoint)}.")
        return Address(url, host in HERE)

    @property
    def root(self) -> str:
        """The address without its version, where some servers have further endpoints."""
        return self.url.removesuffix("/v1")


def no_address(text: str, error: Exception) -> UserError:
    """Returns why an address can be none."""
    why = "a part of the host's name is empty or too long" if isinstance(error, UnicodeError) else str(error)
    shown = re.sub("//.*@", "//", re.split("[?#]", text)[0], flags=re.DOTALL)  # without a password or a key
    return UserError(f"{printable(abridged(shown))} is no address ({why}): give one such as http://127.0.0.1:8000/v1.")


class Listed(NamedTuple):
    """The models that a server names; why it names none, in its own words; and the refusal as a whole sentence where a
    key or another address would mend it."""

    models: Sequence[Mapping[str, Any]]
    why: str = ""
    refusal: str = ""


@dataclass(frozen=True)
class Patience:
    """How long to wait for a reply, how often to try again, and after which pauses, all in seconds.

    timeout: from the request to the end of its reply. A connection that falls silent after the reply has begun is left
    when it has been silent for as long again, at the latest. Before the body, this holds for each piece of the headers
    that arrives. first, longest: the pauses before the second try and at most; each is twice as long as the one
    before, less a random part so that threads do not come back together.
    """

    tries: int = 8
    timeout: float = 600.0
    first: float = 0.5
    longest: float = 60.0

    def pause(self, tried: int) -> float:
        """Draws the pause after so many tries."""
        return min(self.longest, self.first * 2 ** min(tried - 1, 100)) * random.uniform(0.5, 1.0)


class Unanswered(Exception):
    """Raised for a question that is still without an answer after all tries; its text is the last reason."""


class Unfinished(UserError):
    """Raised where a server fails that had begun to answer, or that may answer later: the same command continues."""


class Nobody(UserError):
    """Raised where no server answers at an address."""


class Refusal(UserError):
    """Raised where the server refuses a request. why: its status, where it has one, and its words. too_long:
    whether they say that the prompt is longer than its context."""

    def __init__(self, sentence: str, why: str) -> None:
        super().__init__(sentence)
        self.why, self.too_long = why, too_long(why)


class _Later(Exception):
    """Raised for a refusal that may pass. after: the seconds that the server asks to wait; None where it does not."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


@final
@dataclass
class Client:
    """A server, the key for it and how patiently it is asked. connections: how many are kept open. say: is told of a
    long wait that the server asks for."""

    address: Address
    key: str | None = field(repr=False)
    patience: Patience = Patience()
    connections: int = 8
    say: Callable[[str], object] = lambda text: None

    def __post_init__(self) -> None:
        self.http = _library()
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        limits = self.http.Limits(max_connections=self.connections, max_keepalive_connections=self.connections)
        self.inner = self.http.Client(headers=headers, limits=limits)
        self._lock, self._hold = threading.Lock(), 0.0
        self.tried_again, self.works = 0, False  # works: whether it has answered a question

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.inner.close()

    def answer(self, endpoint: str, body: Mapping[str, Any]) -> Reply:
        """Asks until there is a whole reply. Raises Unanswered after the last try, and UserError for a refusal."""
        found = self._tried(lambda: self._whole(self._once(f"{self.address.url}/{endpoint}", body)))
        self.works = True
        if len(self.key or "") < SHORTEST_KEY:
            return found
        said = {name: redacted(getattr(found, name), self.key) for name in ("text", "reasoning", "finish")}
        return replace(found, **said)

    def post(self, url: str, body: Mapping[str, Any], tries: int | None = None) -> Any:
        """Sends a request to any of the server's addresses until there is a reply, and returns its JSON.

        tries: as often as that at most, instead of as often as is usual.
        """
        return self._tried(lambda: self._once(url, body), tries)

    def models(self) -> list[Mapping[str, Any]]:
        """Lists the models that the server names; [] where it cannot. Raises UserError where no server answers."""
        return list(self.listed().models)

    def listed(self) -> Listed:
        """Returns the models that the server names, or why it names none. Raises Nobody where no server answers."""
        return self._listed(self.address.url)

    def check_path(self) -> None:
        """Raises UserError for an address without a path where the server has its models under /v1."""
        url = self.address.url
        if not urlsplit(url).path and self._listed(f"{url}/v1").models:
            raise UserError(f"The server at {url} answers under {url}/v1: give that address.")

    def _listed(self, url: str) -> Listed:
        try:
            found = self._sent("GET", f"{url}/models", 30.0)
        except self.http.TimeoutException:
            return Listed([], "no reply within 30 seconds")
        except _Later as endless:
            return Listed([], str(endless))
        except self.http.InvalidURL as error:
            raise no_address(url, error) from error
        except self.http.TransportError as error:
            raise Nobody(
                f"No server answers at {self.address.url} ({reason(error, self.key)}): start it, or mend the address."
            ) from error
        except self.http.DecodingError as error:
            return Listed([], reason(error, self.key))
        if found.status_code != 200:
            why = f"{found.status_code}: {words(found, self.key)}"
            mendable = found.status_code in (401, 403) or 300 <= found.status_code < 400
            return Listed([], why, refusal(self.address.url, found, self.key) if mendable else "")
        return _named(found)

    def _tried(self, ask: Callable[[], T], tries: int | None = None) -> T:
        """Asks, and again after a pause while that may help. Raises Unanswered after the last try."""
        for tried in count(1):
            self._wait()
            try:
                return ask()
            except _Later as later:
                if tried >= (tries or self.patience.tries):
                    raise Unanswered(str(later)) from later
                self._later(later.after, tried)
        raise AssertionError("the loop ends with a reply or an error")

    def _wait(self) -> None:
        """Waits while the server has asked all threads to."""
        while (left := self._hold - time.monotonic()) > 0:
            time.sleep(left)

    def _later(self, after: float | None, tried: int) -> None:
        """Pauses this thread, or holds all threads where the server says for how long."""
        with self._lock:
            self.tried_again += 1
            if after is not None:
                after = min(after, LONGEST_HOLD_S)
                until = time.monotonic() + after
                if after >= LONG_HOLD_S and until > self._hold + 1:  # once for all threads
                    self.say(f"The server asks to wait {after:,.0f} seconds.")
                self._hold = max(self._hold, until)
        time.sleep(self.patience.pause(tried))

    def _sent(self, method: str, url: str, seconds: float, body: Mapping[str, Any] | None = None) -> Any:
        """Sends a request and reads its whole reply. Raises _Later for one that is longer than any answer, and the
        library's TimeoutException for one that has not ended within those seconds."""
        until = time.monotonic() + seconds
        timeout = self.http.Timeout(seconds, connect=min(30.0, seconds), pool=None)
        with self.inner.stream(method, url, json=body, timeout=timeout) as found:
            most = MOST_BYTES + BYTES_OF_PROMPT * len(found.request.content) + BYTES_OF_TOKEN * most_tokens(body or {})
            data = bytearray()
            for part in found.iter_bytes():
                data += part
                if len(data) > most:
                    raise _Later(f"a reply of more than {most >> 20} MB")
                if time.monotonic() > until:
                    raise self.http.ReadTimeout("the reply had begun", request=found.request)
            headers = [(name, value) for name, value in found.headers.multi_items() if name.lower() not in ENCODED]
        return self.http.Response(found.status_code, headers=headers, content=bytes(data), request=found.request)

    def _once(self, url: str, body: Mapping[str, Any]) -> Any:
        try:
            found = self._sent("POST", url, self.patience.timeout, body)
        except self.http.TimeoutException:
            raise _Later(f"no reply within {self.patience.timeout:g} seconds")
        except (self.http.TransportError, self.http.DecodingError) as error:
            raise _Later(f"the connection broke ({reason(error, self.key)})")
        said = words(found, self.key) if found.status_code >= 400 else ""
        if passing(found.status_code, said):
            self._refuse_spent(found)
            raise _Later(f"the server answered {found.status_code}: {said}", _after(found.headers))
        if found.status_code >= 400:
            raise Refusal(refusal(self.address.url, found, self.key), f"{found.status_code}: {said}")
        if found.status_code != 200:
            raise UserError(refusal(self.address.url, found, self.key))
        try:
            return _json(found)
        except (ValueError, RecursionError):
            if why := no_answer(self.address.url, found, self.key):
                if not self.works:
                    raise UserError(why)
                raise _Later(f"no answer, but: {words(found, self.key)}")  # as of a gateway whose server is busy
            raise _Later("a reply that is cut off")

    def _whole(self, found: Any) -> Reply:
        """Reads a reply. Raises UserError where it is a refusal that no pause mends."""
        if inside := refused_inside(found, self.key):
            said, may_pass = inside
            if may_pass:
                raise _Later(f"the server answered: {said}")
            raise Refusal(f"{self.address.url} refuses ({said}): {remedy(200, said)}.", said)
        try:
            return read(found)
        except BrokenReply as broken:
            raise _Later(str(broken)) from broken
        except RecursionError as endless:
            raise _Later("an answer of too many parts within parts") from endless

    def _refuse_spent(self, found: Any) -> None:
        """Raises UserError for a refusal that no pause mends: an account without money."""
        if found.status_code == 429 and "insufficient_quota" in found.text:
            said = words(found, self.key)
            raise UserError(f"{self.address.url} refuses, {said}: nothing more can be asked with this key.")


def _library() -> Any:
    try:
        import httpx2
    except ImportError as error:
        raise UserError("Asking a server needs the package httpx2: pip install 'levelfield[serve]'.") from error
    return httpx2


def _json(found: Any) -> Any:
    """Reads the JSON of a reply. Bytes that are no character, as of one that is cut in two, are replaced."""
    try:
        return found.json()
    except UnicodeDecodeError:
        return json.loads(found.content.decode(errors="replace"))


def _named(found: Any) -> Listed:
    """Reads a list of models; an empty one from anything else."""
    try:
        listed = found.json().get("data", [])
    except (ValueError, AttributeError, RecursionError):
        return Listed([])
    return Listed([each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else [])


def _after(headers: Mapping[str, str]) -> float | None:
    """Reads how many seconds the server asks to wait, which it may say as a date, too; None where it does not."""
    reads = (
        ("retry-after-ms", lambda text: float(text) / 1000),
        ("retry-after", float),
        ("retry-after", lambda text: parsedate_to_datetime(text).timestamp() - time.time()),
    )
    for name, read_ in reads:
        with suppress(KeyError, ValueError, OverflowError, OSError):
            if 0 <= (seconds := read_(headers[name])) < float("inf"):
                return seconds
    return None
