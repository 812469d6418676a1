"""Reads the options that say how a server is asked, and refuses those that no request can have.

way_of(ServedOptions(ask="chat", more='{"top_p": 0.9}'))     # how questions are put
client_of(Address.of("http://127.0.0.1:8000/v1"), ServedOptions())
"""

from __future__ import annotations

import json
import os
from typing import Any

from levelfield.cli.arguments import CLUSTER, MOST, ClusterOptions, is_text
from levelfield.cli.ruler_options import PLACED, ModelChoice, PlaceOptions, ServedOptions
from levelfield.files import abridged
from levelfield.longcontext.bill import Prices
from levelfield.longcontext.served.client import Address, Client, Patience
from levelfield.longcontext.served.way import WRITTEN, Way
from levelfield.presets.options import names
from levelfield.spec import UserError

OURS = {
    "model": "name the model by --model",
    "prompt": "levelfield writes the prompts, and --ask and --template say how",
    "messages": "levelfield writes the messages, and --ask chat and --system say how",
    "stream": "answers are read whole, none as a stream",
    "n": "each question has one answer, and costs are of one",
    **dict.fromkeys(WRITTEN, "each task has its own, with --thinking added, in the field that --budget-field names"),
}
"""Fields of requests that --more cannot have, and why."""
USUAL = {"stream": False, "n": 1}
"""What two of them may say, which is so anyway."""
CHOSEN = {
    "temperature": "give --temperature",
    "continue_final_message": "choose --ask chat-prefix",
    "add_generation_prompt": "choose --ask chat-prefix",
}
"""Fields that options set, which --more may leave out by null but not give another value."""
LOADED = ("device", "precision", "reference_bug")
"""Options of a model that is loaded here."""
FLAGS = {"copies": "--copies (--devices)"}
"""Options that have two names."""


def way_of(options: ServedOptions) -> Way:
    """Returns how questions are put. Raises UserError for values that no request can have."""
    if options.more:
        _check_more(options.more)
    if not 0 <= options.temperature <= 100:
        raise UserError(f"A temperature of {options.temperature:g} cannot be: give one such as 0 or 0.6.")
    return Way(
        options.ask,
        options.system,
        options.temperature,
        options.thinking,
        options.more,
        budget_field=options.budget_field,
    )


def _check_more(more: str) -> None:
    """Raises UserError for fields that no request can have, or that an option of its own sets."""
    shown = abridged(ascii(more)[1:-1] if not is_text(more) else more)
    try:
        fields: Any = json.loads(more)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise UserError(f"--more {shown} is no JSON object: give one such as '{{\"top_p\": 0.9}}'.")
    try:
        json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeError:
        raise UserError("--more has half a character, which no request can have: take it out.")
    except ValueError:
        raise UserError(f"--more {shown} has NaN or Infinity, which JSON does not have: give a number, or null.")
    for name, why in OURS.items():
        if name in fields and not (name in USUAL and fields[name] == USUAL[name]):
            raise UserError(f"--more cannot set '{name}', {why}: leave it out.")
    for name, instead in CHOSEN.items():
        if fields.get(name) is not None:
            raise UserError(f"--more cannot set '{name}', which has an option of its own: {instead}.")
    if not isinstance(fields.get("chat_template_kwargs") or {}, dict):
        raise UserError('chat_template_kwargs in --more takes an object, such as {"enable_thinking": false}.')


def prices_of(options: ServedOptions) -> Prices | None:
    """Reads the two prices; None without any. Raises UserError."""
    if not (words := names(options.prices)):
        return None
    try:
        read, written = (float(word) for word in words)
    except ValueError:
        raise UserError("--prices takes two numbers, dollars for a million tokens read and written: 0.15,0.60.")
    if not (0 <= read < MOST and 0 <= written < MOST):
        raise UserError("--prices are dollars from 0 on: give two such as 0.15,0.60.")
    return Prices(read, written)


def client_of(address: Address, options: ServedOptions) -> Client:
    """Makes the client. Raises UserError where a key would go out unencrypted without being asked to."""
    key = key_of(address, options)
    patience = Patience(tries=options.tries, timeout=float(options.timeout))
    return Client(address, key, patience, options.at_once)


def key_of(address: Address, options: ServedOptions) -> str | None:
    """Returns the key to send to this address; None without any. Raises UserError for one that cannot be sent."""
    key = os.environ.get(options.key_env, "").strip() or None
    named = options.key_env != ServedOptions().key_env
    if named and key is None:
        raise UserError(f"The environment variable {options.key_env} is not set: export it, or leave out --key-env.")
    if key and not named and not address.here and not address.url.startswith("https"):
        return None  # it is the key of another service
    if key and not (key.isascii() and key.isprintable()):
        raise UserError(
            f"The key in the environment variable {options.key_env} has characters that no key can have, such as a "
            "line break or a letter beyond ASCII: set it again."
        )
    return key


def check_left_out(model: ModelChoice, place: PlaceOptions, cluster: ClusterOptions) -> None:
    """Raises UserError for options of a model that is loaded here or by an engine, which a server does not read."""
    loaded = {name: value for name, value in vars(model).items() if name in LOADED}
    given = loaded | vars(place) | vars(cluster)
    usual = vars(ModelChoice()) | vars(PLACED) | vars(CLUSTER)
    if chosen := [FLAGS.get(name, f"--{name.replace('_', '-')}") for name in given if given[name] != usual[name]]:
        raise UserError(f"A server places and computes its model itself: leave out {' and '.join(chosen)}.")
