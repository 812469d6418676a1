"""Implements the `ruler` command for a model behind a server: counts, asks, and writes rows and figures.

    levelfield ruler http://127.0.0.1:8000/v1 --model NAME --lengths 4096,8192

What it writes is what the command writes for a model that is loaded here, in the folder `runs/ruler/NAME-served`.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from levelfield.cli import dry_run, ruler_command
from levelfield.cli.ruler_options import EvalOptions, ModelChoice, OutputOptions, ServedOptions
from levelfield.cli.served_options import client_of, prices_of, way_of
from levelfield.cli.streams import Say, say_all
from levelfield.files import check_name, disk_errors, made
from levelfield.longcontext import answers, damage, model_record, pace, runner
from levelfield.longcontext.bill import Bill, Prices
from levelfield.longcontext.cut_off import cut_lengths
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import LeftOut, Prediction
from levelfield.longcontext.reserved import reserved
from levelfield.longcontext.served import asking
from levelfield.longcontext.served.asking import Served
from levelfield.longcontext.served.client import Address, Client, Listed, Nobody, Unfinished
from levelfield.longcontext.served.lengths import SERVER, is_exact, tokenizer_for, tokenizer_here
from levelfield.longcontext.survey import Checkpoint
from levelfield.ruler import Sources, Tokenizer
from levelfield.spec import UserError

SUFFIX = "-served"
LIMITS = ("max_model_len", "max_context_length", "context_length", "context_window")
FREE_TOKENS = 10_000_000  # to read, above which a server elsewhere is asked only after confirmation
HOST = re.compile(r"(?:\w+:/+)?(?P<rest>[\w.-]+:\d+(?:/.*)?)")  # and a port, which no folder and no name on the hub has
NO_NAME = re.compile(r"[^\w.+-]")
LONGEST_NAME = 60  # bytes of a folder's name, as `files.check_name` takes it
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


def evaluate(choice: Choice, asked: EvalOptions, sources: Sources, output: OutputOptions, say: Say) -> bool:
    """Asks the server what is not answered yet, scores all answers, and writes rows and figures.

    Returns whether the same command would find nothing more to ask, but what the server refuses for good.
    """
    address, _, _ = Address.of(choice.model.name), way_of(choice.served), prices_of(choice.served)
    left: Sequence[LeftOut] = ()
    put: Sequence[Evaluation] = ()
    if output.rescore:
        folder = _stored(choice.served.model, output)
        ruler_command.evaluations(asked, choice.served.model or "", sources)  # or what is wrong with the options
    else:
        known = choice.served.model or not asked.table  # else the server says whose part of the tables is meant
        evaluations = _checked(asked, choice.served.model or "", sources, say) if known else ()
        here = tokenizer_here(word) if (word := choice.model.tokenizer) and word != SERVER else None
        with client_of(address, choice.served) as client:
            client.say = say
            listed = _listed(client, choice, here, output.runs_dir, say)
            name = model_of(choice.served.model, listed, address)
            if (names := _names(listed.models)) and name not in names:
                say(f"The server lists no model {name}, and may refuse it: it has {_few(names)}.")
            folder = folder_of(name, output.runs_dir)
            damage.check(folder)
            way = way_of(choice.served).as_stored(model_record.ways(folder))
            evaluations = evaluations or _checked(asked, name, sources, say)
            try:
                counting = word or model_record.counting_of(folder)
                served = Served(client, name, way, here or tokenizer_for(counting, name, client))
                left = _asked(served, Asked(choice, listed.models, evaluations, folder, output.report_dir), say)
            except Unfinished as why:
                print(f"levelfield: {why}", file=sys.stderr)
                return False
            put = tuple(map(served.put, evaluations))
    if choice.dry_run and not output.rescore:
        return True
    found = ruler_command.conclude(folder, output.report_dir, say, asked=put)
    labels = {p.template for p in found}
    say_all(counted(found, {label: model_record.way_of(folder, label) for label in labels}), say)
    _check_lengths_answered(left, found)
    return not any(one.unanswered for one in left)


def _check_lengths_answered(left: Iterable[LeftOut], found: Iterable[Prediction]) -> None:
    """Raises UserError where a task has no answer at a length that is beyond the server's context."""
    answered = {p.cell for p in found}
    if lengths := sorted({one.length for one in left if one.too_long and one.cell not in answered}):
        raise UserError(
            f"The server takes no prompts of {', '.join(map(str, lengths))} tokens, or not of all tasks: give shorter "
            "--lengths, or start it with a longer context. All else is stored and in the report."
        )


def _checked(asked: EvalOptions, model: str, sources: Sources, say: Say) -> tuple[Evaluation, ...]:
    """Makes the evaluations, and says which tasks are left out for want of a file.

    Raises UserError for what can be seen to be wrong with them without a server.
    """
    found = ruler_command.evaluations(asked, model, sources)
    ruler_command.check(found)
    say_all(ruler_command.left_out(asked, model, sources), say)
    return found


def _listed(client: Client, choice: Choice, here: Tokenizer | None, runs_dir: Path, say: Say) -> Listed:
    """Returns the models that the server names; none for a dry run that needs no server and finds none.

    here: the tokenizer that needs no server. runs_dir: where answers may be stored already. Raises UserError where no
    server answers or it has another address.
    """
    model = choice.served.model
    try:
        listed = client.listed()
    except Nobody as nobody:
        if choice.dry_run and model and here:
            say(f"{nobody} The dry run goes on without it, and does not know the longest prompt that its model takes.")
            return Listed([])
        if model and answers.predictions(folder_of(model, runs_dir)):
            raise Nobody(f"{nobody} For a report of what is stored, give --rescore.") from nobody
        raise
    client.check_path()
    return listed


class Asked(NamedTuple):
    """What a server is asked: options, the models that it lists, evaluations, and the folders of answers and report."""

    choice: Choice
    listed: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Evaluation]
    folder: Path
    report_dir: Path


def _asked(served: Served, asked: Asked, say: Say) -> Sequence[LeftOut]:
    """Says what it takes, and asks unless that was all that was wanted. Returns the samples without an answer."""
    facts = {"model": served.model, "tokenizer": served.tokenizer.name, "precision": model_record.SERVED}
    model_record.check(asked.folder, facts)
    sentences = {served.put(each).template: served.sentence(each.template) for each in asked.evaluations}
    evaluations = tuple(served.put(each) for each in asked.evaluations)
    check_limit(served, asked.listed, evaluations)
    options, address = asked.choice.served, served.client.address
    bill = Bill.of(served.tokenizer, evaluations, asked.folder, served.way.most, beside=served.beside)
    bill = bill._replace(template_unknown=served.template_unknown)
    prices = prices_of(options)
    say(f"{served.model} at {address.url}: {'; '.join(sentences.values())}.")
    say(f"Tokens are counted by {_counting(served)}. {bill.line(prices)}")
    if asked.choice.dry_run:
        say(dry_run.time_line(bill, pace.known(asked.folder)))
        return ()
    confirm(bill, prices, options, address)
    with reserved(asked.folder, asked.report_dir, say), disk_errors(asked.folder, "--runs-dir"):
        made(asked.report_dir, "--report-dir")
        model_record.claim(asked.folder, **facts)
        if earlier := model_record.other_address(asked.folder, address.url):
            say(
                f"The last answers in {asked.folder} are of {served.model} at {earlier}, and it is {address.url} that "
                "is asked now: if that is another model, give another --runs-dir."
            )
        asking.note_ways(asked.folder, sentences)
        with (
            ruler_command.shown_scores(evaluations) as show,
            pace.noted(asked.folder, show) as timed,
            model_record.address_noted(asked.folder, address.url, timed) as watched,
        ):
            return asking.evaluate(served, evaluations, asked.folder, options.at_once, watched)


def _stored(model: str | None, output: OutputOptions) -> Path:
    """Returns the folder of a model's answers without asking its server. Raises UserError where there are none."""
    if not model:
        raise UserError("--rescore asks no server which model it has: add --model NAME.")
    folder = folder_of(model, output.runs_dir)
    damage.check(folder)
    ruler_command.check_stored(folder)
    return folder


def model_of(name: str | None, listed: Listed, address: Address) -> str:
    """Returns the model's name, which may be left out where the server has only one. Raises UserError."""
    known = _names(listed.models)
    if name:
        return name
    if len(known) == 1:
        return known[0]
    if listed.refusal:
        raise UserError(listed.refusal)
    why = f" ({listed.why})" if listed.why else ""
    has = f"it has {_few(known)}" if known else f"it does not say which it has{why}"
    raise UserError(f"Which model of {address.url}? Add --model NAME; {has}.")


def _names(listed: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the names of models, without those that a terminal could not show as they are."""
    return [name for each in listed if (name := str(each.get("id") or "")) and name.isprintable()]


def _few(known: Sequence[str], most: int = 8) -> str:
    """Names the first models, and says how many more there are."""
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


def folder_of(name: str, runs_dir: Path) -> Path:
    """Returns the folder of the answers to a model of any name.

    Characters that no folder's name has become hyphens. A name that is too long is cut, and ends in a hash of it.
    """
    label = NO_NAME.sub("-", Checkpoint("", name).folder)
    if len((label + SUFFIX).encode()) > LONGEST_NAME:
        ending = f"-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:6]}"
        label = label.encode()[: LONGEST_NAME - len(SUFFIX + ending)].decode(errors="ignore") + ending
    check_name("model", label + SUFFIX)
    return runs_dir / "ruler" / (label + SUFFIX)


def check_limit(served: Served, listed: Sequence[Mapping[str, Any]], evaluations: Iterable[Evaluation]) -> None:
    """Raises UserError for lengths beyond what the server says that its model takes, answers and thinking included."""
    mine = [each for each in listed if each.get("id") == served.model]
    most = min((value for each in mine for value in _limits(each)), default=None)
    before, thinking = served.beside, served.way.thinking
    for each in evaluations:
        least = min(task.answer_tokens for task in each.tasks)
        if most is not None and thinking and most - before - thinking <= least:
            raise UserError(
                f"{served.model} takes at most {most} tokens, and with {thinking} to write beside an answer there is "
                "no room for a question: give less --thinking."
            )
        advice = ", or less --thinking" if thinking else ""
        if served.template_unknown:
            advice += ", and leave room for the chat template, which only the server knows"
        runner.check_lengths(served.model, most, each, before + thinking, advice)


def _limits(listed: Mapping[str, Any]) -> list[int]:
    """Returns the most tokens of a model, wherever its server says them; llama.cpp does so under `meta`."""
    meta = listed.get("meta")
    found = [listed.get(key) for key in LIMITS] + [meta.get("n_ctx") if isinstance(meta, Mapping) else None]
    return [value for value in found if isinstance(value, int) and not isinstance(value, bool) and value > 0]


def confirm(bill: Bill, prices: Prices | None, options: ServedOptions, address: Address) -> None:
    """Asks whether to go on where the cost is above the limit. Raises UserError where nobody can answer, or says no."""
    if prices is None:
        above = not address.here and bill.read > FREE_TOKENS
        why = f"more than {FREE_TOKENS:,} tokens to read, and no --prices"
    else:
        above = bill.cost(prices) > options.limit
        why = f"${bill.cost(prices):,.2f} is more than the limit of ${options.limit:,.2f}"
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


def counted(found: Sequence[Prediction], asked: Mapping[str, str]) -> Iterator[str]:
    """Yields lines on what the server counted otherwise than we did, by length.

    asked: how the questions under each label were put (`model_record.way_of`), and whether our own counts are exact.
    """

    def exact(label: str) -> bool:
        return model_record.is_exact(asked.get(label, ""))

    groups: dict[tuple[str, int], list[Prediction]] = {}
    for p in found:
        groups.setdefault((p.template, p.length), []).append(p)
    cut = {label: cut_lengths((p for p in found if p.template == label), exact(label)) for label, _ in groups}
    for (label, length), whole in groups.items():
        if not (group := [p for p in whole if "prompt" in p.counted]):
            continue
        counts = sorted(p.counted["prompt"] for p in group)
        where = f"At {length} ({label}) the server counted {_span(counts[0], counts[-1])} tokens of prompt"
        ours = sorted(p.tokens for p in group)
        if length in cut[label]:
            about = "up to" if exact(label) else "about"
            yield f"{where}, and prompts have {about} {ours[-1]:,}: it may have cut some off."
        elif any(abs(p.counted["prompt"] - p.tokens) > NEAR for p in group):
            by = "tokenizer" if exact(label) else "approximation"
            yield f"{where}; by the {by} here they have {_span(ours[0], ours[-1])}."


def _span(least: int, most: int) -> str:
    return f"{least:,} to {most:,}" if least != most else f"{least:,}"
