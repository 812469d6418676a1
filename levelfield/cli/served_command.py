"""Implements the `ruler` command for a model behind a server: counts, asks, and writes rows and figures.

    levelfield ruler http://127.0.0.1:8000/v1 --model NAME --lengths 4096,8192

What it writes is what the command writes for a model that is loaded here, in the folder `runs/ruler/NAME-served`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from levelfield.cli import dry_run, ruler_command
from levelfield.cli.arguments import MOST
from levelfield.cli.ruler_options import EvalOptions, ModelChoice, OutputOptions, ServedOptions
from levelfield.cli.streams import Say, say_all
from levelfield.files import disk_errors, made
from levelfield.longcontext import model_record, pace, runner
from levelfield.longcontext.bill import Bill, Prices
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import Prediction
from levelfield.longcontext.reserved import reserved
from levelfield.longcontext.served import asking
from levelfield.longcontext.served.asking import Served
from levelfield.longcontext.served.client import Address, Client, Patience
from levelfield.longcontext.served.lengths import is_exact, tokenizer_for
from levelfield.longcontext.served.way import Way
from levelfield.longcontext.survey import Checkpoint
from levelfield.presets.options import names
from levelfield.ruler import Sources
from levelfield.runs import store
from levelfield.spec import UserError

SUFFIX = "-served"
LIMITS = ("max_model_len", "max_context_length", "context_length", "context_window")
FREE_TOKENS = 10_000_000  # to read, above which a server elsewhere is asked only after confirmation
HOST = re.compile(r"(?:\w+:/+)?(?P<rest>[\w.-]+:\d+(?:/.*)?)")  # and a port, which no folder and no name on the hub has
NEAR = 8  # tokens by which exact counts may differ, such as those of the beginning of a sequence


class Choice(NamedTuple):
    """The address with the tokenizer, and how the server is asked. dry_run: whether to say only what it comes to."""

    model: ModelChoice
    served: ServedOptions
    dry_run: bool = False


def is_address(name: str) -> bool:
    """Whether MODEL is the address of a server. Raises UserError for one without http://, or with another scheme."""
    if name.startswith(("http://", "https://")):
        return True
    if (found := HOST.fullmatch(name)) and not Path(name).exists():
        raise UserError(f"{name} is no address without http:// at its beginning: give http://{found['rest']}.")
    scheme, mark, _ = name.partition("://")
    if mark and not Path(name).exists():
        raise UserError(f"Servers are asked by http or https, not by {scheme}: give http://HOST:PORT/v1.")
    return False


def evaluate(choice: Choice, asked: EvalOptions, sources: Sources, output: OutputOptions, say: Say) -> None:
    """Asks the server what is not answered yet, scores all answers, and writes rows and figures."""
    address, _, _ = Address.of(choice.model.name), way_of(choice.served), prices_of(choice.served)
    if output.rescore:
        folder = _stored(choice.served.model, output)
        evaluations = ruler_command.evaluations(asked, choice.served.model or "", sources)
    else:
        with client_of(address, choice.served) as client:
            listed = client.models()
            client.check_path()
            name = model_of(choice.served.model, listed, address)
            if (known := _names(listed)) and name not in known:
                say(f"The server lists no model {name}, and may refuse it: it has {_few(known)}.")
            served = Served(client, name, way_of(choice.served), tokenizer_for(choice.model.tokenizer, name, client))
            folder = folder_of(name, output.runs_dir)
            evaluations = ruler_command.evaluations(asked, name, sources)
            if not _asked(served, Asked(choice, listed, evaluations, folder, output.report_dir), say):
                return
    say_all(counted(ruler_command.conclude(folder, evaluations, output.report_dir, say)), say)


class Asked(NamedTuple):
    """What a server is asked: options, the models that it lists, evaluations, and the folders of answers and report."""

    choice: Choice
    listed: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Evaluation]
    folder: Path
    report_dir: Path


def _asked(served: Served, asked: Asked, say: Say) -> bool:
    """Says what it takes, and asks unless that was all that was wanted. Returns whether it asked."""
    sentences = {served.put(each).template: served.sentence(each.template) for each in asked.evaluations}
    evaluations = tuple(served.put(each) for each in asked.evaluations)
    ruler_command.check(evaluations)
    check_limit(served, asked.listed, evaluations)
    options, address = asked.choice.served, served.client.address
    bill = Bill.of(served.tokenizer, evaluations, asked.folder, served.way.most)
    prices = prices_of(options)
    say(f"{served.model} at {address.url}: {'; '.join(sentences.values())}.")
    say(f"Tokens are counted by {_counting(served)}. {bill.line(prices)}")
    if asked.choice.dry_run:
        say(dry_run.time_line(bill, pace.known(asked.folder)))
        return False
    confirm(bill, prices, options, address)
    with reserved(asked.folder, asked.report_dir, say), disk_errors(asked.folder, "--runs-dir"):
        made(asked.report_dir, "--report-dir")
        model_record.claim(asked.folder, model=served.model, tokenizer=served.tokenizer.name, precision="served")
        asking.note_ways(asked.folder, sentences)
        with ruler_command.shown_scores(evaluations) as show, pace.noted(asked.folder, show) as watched:
            asking.evaluate(served, evaluations, asked.folder, options.at_once, watched)
    return True


def _stored(model: str | None, output: OutputOptions) -> Path:
    """Returns the folder of a model's answers without asking its server. Raises UserError where there are none."""
    if not model:
        raise UserError("--rescore asks no server which model it has: add --model NAME.")
    folder = folder_of(model, output.runs_dir)
    ruler_command.check_stored(folder)
    return folder


def way_of(options: ServedOptions) -> Way:
    """Returns how questions are put. Raises UserError for values that no request can have."""
    if options.more:
        try:
            good = isinstance(json.loads(options.more), dict)
        except ValueError:
            good = False
        if not good:
            raise UserError(f"--more {options.more} is no JSON object: give one such as '{{\"top_p\": 0.9}}'.")
    if not 0 <= options.temperature <= 100:
        raise UserError(f"A temperature of {options.temperature:g} cannot be: give one such as 0 or 0.6.")
    return Way(options.ask, options.system, options.temperature, options.thinking, options.more)


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
    key = os.environ.get(options.key_env) or None
    named = options.key_env != ServedOptions().key_env
    if named and key is None:
        raise UserError(f"The environment variable {options.key_env} is not set: export it, or leave out --key-env.")
    if key and not named and not address.here and not address.url.startswith("https"):
        key = None  # it is the key of another service
    for name, value in (("tries", options.tries), ("timeout", options.timeout), ("at-once", options.at_once)):
        if value < 1:
            raise UserError(f"--{name} is {value}: give 1 or more.")
    patience = Patience(tries=options.tries, timeout=float(options.timeout))
    return Client(address, key, patience, options.at_once)


def model_of(name: str | None, listed: Sequence[Mapping[str, Any]], address: Address) -> str:
    """Returns the model's name, which may be left out where the server has only one. Raises UserError."""
    known = _names(listed)
    if name:
        return name
    if len(known) == 1:
        return known[0]
    has = f"it has {_few(known)}" if known else "it does not say which it has"
    raise UserError(f"Which model of {address.url}? Add --model NAME; {has}.")


def _names(listed: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(each["id"]) for each in listed if each.get("id")]


def _few(known: Sequence[str], most: int = 8) -> str:
    """Names the first models, and says how many more there are."""
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


def folder_of(name: str, runs_dir: Path) -> Path:
    """Returns the folder of the answers. Raises UserError for a name that cannot be that of a folder."""
    label = Checkpoint("", name).folder.replace(":", "-") + SUFFIX
    store.check_name("model", label)
    return runs_dir / "ruler" / label


def check_limit(served: Served, listed: Sequence[Mapping[str, Any]], evaluations: Iterable[Evaluation]) -> None:
    """Raises UserError for lengths beyond what the server says that its model takes, answers and thinking included."""
    mine = [each for each in listed if each.get("id") == served.model]
    known = [value for each in mine for value in _limits(each)]
    before = len(getattr(served.tokenizer, "bos_ids", ()))
    for each in evaluations:
        beside = max(served.way.most(task.answer_tokens) - task.answer_tokens for task in each.tasks)
        runner.check_lengths(served.model, min(known, default=None), each, before + max(0, beside))


def _limits(listed: Mapping[str, Any]) -> list[int]:
    """Returns the most tokens of a model, wherever its server says them; llama.cpp does so under `meta`."""
    meta = listed.get("meta")
    found = [listed.get(key) for key in LIMITS] + [meta.get("n_ctx") if isinstance(meta, Mapping) else None]
    return [value for value in found if isinstance(value, int)]


def confirm(bill: Bill, prices: Prices | None, options: ServedOptions, address: Address) -> None:
    """Asks whether to go on where the cost is above the limit. Raises UserError where nobody can answer, or says no."""
    if prices is None:
        above = not address.here and bill.read > FREE_TOKENS
        why = f"more than {FREE_TOKENS:,} tokens to read, and no --prices"
    else:
        above = bill.cost(prices) > options.limit
        why = f"${bill.cost(prices):,.2f} is more than the limit of ${options.limit}"
    if not above or options.yes:
        return
    if not sys.stdin.isatty():
        raise UserError(f"{why[0].upper()}{why[1:]}: add --yes to ask all the same.")
    if input(f"{why[0].upper()}{why[1:]}. Ask all the same? [y/N] ").strip().lower() not in ("y", "yes"):
        raise UserError("Nothing was asked.")


def _counting(served: Served) -> str:
    if not is_exact(served.tokenizer):
        return "an approximation (name the model's --tokenizer for exact lengths)"
    return f"the tokenizer {served.tokenizer.name}"


def counted(found: Sequence[Prediction]) -> Iterator[str]:
    """Yields lines on what the server counted otherwise than we did, by length."""
    groups: dict[tuple[str, int], list[Prediction]] = {}
    for p in found:
        if "prompt" in p.counted:
            groups.setdefault((p.template, p.length), []).append(p)
    for (label, length), group in groups.items():
        counts = sorted(p.counted["prompt"] for p in group)
        where = f"At {length} ({label}) the server counted {_span(counts[0], counts[-1])} tokens of prompt"
        if any(p.cut_off for p in group):
            yield f"{where}, and prompts have up to {max(p.tokens for p in group):,}: it may have cut some off."
        elif any(abs(p.counted["prompt"] - p.tokens) > NEAR for p in group):
            yield f"{where}; by the tokenizer here they have {_span(min(p.tokens for p in group), length)}."


def _span(least: int, most: int) -> str:
    return f"{least:,} to {most:,}" if least != most else f"{least:,}"
