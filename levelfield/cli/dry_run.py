"""Says what a `ruler` command comes to before anything is asked: questions, tokens, time, and what is missing.

    local(ModelChoice("models/pythia-160m"), evaluations, OutputOptions(), PlaceOptions(), print)
    # models/pythia-160m: 1,100 questions. To read: at most 1,502,600 tokens; to write: at most 93,900.
    # Time: about 12 min ...

The time is that of the last answers in the same folder. Before there are any, it is estimated for a model that is
computed here: two operations for every parameter and token, as fast as a product of matrices is. What asking would
refuse before it reads a weight, a dry run refuses, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from levelfield.cli import ruler_command
from levelfield.cli.ruler_options import EvalOptions, ModelChoice, OutputOptions, PlaceOptions
from levelfield.cli.streams import Say
from levelfield.engine import questions
from levelfield.engine.placement import HERE
from levelfield.longcontext import damage, model_record, pace
from levelfield.longcontext.bill import Bill
from levelfield.longcontext.evaluation import Evaluation
from levelfield.report.tables import duration, si
from levelfield.ruler import Tokenizer
from levelfield.spec import UserError

UNKNOWN = "Time: not known before something was answered; --count 1 takes little and measures it."


def missing(model: ModelChoice, asked: EvalOptions) -> str:
    """Says what a command without a model lacks, in the order in which a person would give it."""
    parts = ["a MODEL: a folder of weights, a name on the hub, the id of a run, or the address of a server"]
    if not model.tokenizer:
        parts.append("--tokenizer, where none lies beside the model")
    return f"levelfield ruler needs {'; then '.join([*parts, *_lengths(asked)])}."


def missing_for_export(asked: EvalOptions) -> str:
    """Says what an export without a tokenizer lacks, in the same order."""
    tokenizer = "--tokenizer: the model's folder or its name on the hub, or bytes or approximate"
    return f"levelfield export ruler needs {'; then '.join([tokenizer, *_lengths(asked)])}."


def _lengths(asked: EvalOptions) -> list[str]:
    if asked.lengths or asked.table:
        return []
    default = ",".join(map(str, Evaluation().lengths))
    return [f"--lengths, such as 4096,8192 ({default} unless they are given)"]


def local(
    choice: ModelChoice, evaluations: Sequence[Evaluation], output: OutputOptions, place: PlaceOptions, say: Say
) -> None:
    """Says what evaluations of a model that is loaded here, or by an engine, come to, without its weights.

    Raises UserError for what would be refused before a weight is read: see `ruler_command.check`, `_read` and
    `_check_folder`.
    """
    folder = ruler_command.folder_of(choice, output.runs_dir)
    damage.check(folder)
    ruler_command.check(evaluations)
    ruler_command.check_lengths(choice, output.runs_dir, evaluations)
    tokenizer, parameters = _read(choice, output, place, max(each.longest for each in evaluations))
    _check_folder(choice, output, folder, tokenizer)
    joined_later = questions.answered(ruler_command.named_model(choice, output.runs_dir), folder)
    bill = Bill.of(tokenizer, evaluations, folder, more=joined_later)
    say(f"{choice.name}, by the tokenizer {tokenizer.name}: {bill.line()} It is computed here and costs nothing else.")
    say(time_line(bill, pace.known(folder), _estimate(bill, parameters, choice)))


def _check_folder(choice: ModelChoice, output: OutputOptions, folder: Path, tokenizer: Tokenizer) -> None:
    """Raises UserError if a folder has answers of another model, tokenizer or precision.

    Of a name on the hub, whose weights may not be here, the model is not compared.
    """
    named = ruler_command.named_model(choice, output.runs_dir)
    facts: dict[str, str] = {"tokenizer": tokenizer.name, "precision": named.precision}
    if named.trained_here or Path(choice.name).exists():
        facts |= {"model": named.text().mark}
    model_record.check(folder, facts)


def time_line(bill: Bill, rate: float | None, estimate: str = UNKNOWN) -> str:
    """Says how long it takes: at the rate of earlier answers in tokens a second, or else by an estimate."""
    if bill.read + bill.written == 0:
        return "Time: none, since all of it is answered."
    if rate is None:
        return estimate
    return f"Time: about {duration(bill.seconds(rate))}, at the {rate:,.0f} tokens a second of the last answers here."


def _read(choice: ModelChoice, output: OutputOptions, place: PlaceOptions, length: int) -> tuple[Tokenizer, int]:
    """Reads the tokenizer of a model, and how many parameters its files have; 0 where they do not lie here.

    Raises UserError where it would not fit into the memory here with a question of that length. What machines of a
    cluster have is not known here.
    """
    named = ruler_command.named_model(choice, output.runs_dir)
    if named.trained_here:
        return named.text().tokenizer, 0
    from levelfield.pretrained import memory, tokenizer_of
    from levelfield.pretrained.checkpoints.files import Folder
    from levelfield.pretrained.locate import resolve_model_path
    from levelfield.run import pick_device

    path = resolve_model_path(choice.name, weights=False)
    tokenizer = tokenizer_of(choice.tokenizer, path)
    try:
        parameters = memory.parameters(Folder(path))
    except UserError:  # a name on the hub whose weights are not downloaded yet
        return tokenizer, 0
    if place.engine == HERE.engine:
        device = str(pick_device(choice.device))
        copies = place.copies if device == "cpu" else 1  # each has a GPU of its own, where there are as many
        there = memory.Place(device, copies, place.spread)
        memory.check(choice.name, memory.predicted(path, choice.precision), length, there)
    return tokenizer, parameters


def _estimate(bill: Bill, parameters: int, choice: ModelChoice) -> str:
    if not parameters:
        return UNKNOWN
    from levelfield.pretrained.speed import operations
    from levelfield.run import pick_device

    rate = operations(pick_device(choice.device), choice.precision)
    seconds = 2 * parameters * (bill.read + bill.written) / rate
    return (
        f"Time: about {duration(seconds)}, estimated by two operations for each of {si(parameters)} parameters "
        f"and each token, at the {si(rate)} a second of a product of matrices here. Attention takes more."
    )
