"""Defines the commands of language models: `ruler`, its `report`, `export` and `import`, importing nothing of them yet.

levelfield ruler models/mamba2-2.7b --lengths 1024,2048
levelfield import results/samples_niah_single_1_2026-11-22T21-30-02.jsonl --model mamba2-2.7b
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from levelfield.cli.arguments import CLUSTER, ClusterOptions, File, Files, Folder, Length, Names, Switch, Text
from levelfield.cli.ruler_options import (
    ASKED,
    OUTPUT,
    PLACED,
    SERVED,
    TEXTS,
    EvalOptions,
    ModelChoice,
    OutputOptions,
    PlaceOptions,
    ServedOptions,
    TextOptions,
)
from levelfield.cli.streams import ended, say, say_all
from levelfield.spec import UserError


def ruler(
    model: Annotated[ModelChoice, arg(name="")],
    asked: Annotated[EvalOptions, arg(name="")] = ASKED,
    texts: Annotated[TextOptions, arg(name="")] = TEXTS,
    output: Annotated[OutputOptions, arg(name="")] = OUTPUT,
    place: Annotated[PlaceOptions, arg(name="")] = PLACED,
    cluster: Annotated[ClusterOptions, arg(name="")] = CLUSTER,
    served: Annotated[ServedOptions, arg(name="")] = SERVED,
    dry_run: Switch = False,
) -> None:
    """Evaluate a language model on RULER, by task, length and depth.

    Args:
        dry_run: show what it would take (questions, tokens, time, and with --prices the cost); ask nothing
    """
    from levelfield.cli import dry_run as dry
    from levelfield.cli import ruler_command, ruler_copies, served_command, served_options

    if not model.name:
        raise UserError(dry.missing(model, asked))
    sources = ruler_command.sources(texts)
    if served_command.is_address(model.name):
        served_options.check_left_out(model, place, cluster)
        ended(served_command.evaluate(served_command.Choice(model, served, dry_run), asked, sources, output, say))
        return
    if replace(served, system="", thinking=0) != SERVED:
        raise UserError(f"{model.name} is no address, and options of servers were given: name http://HOST:PORT/v1.")
    way = served_options.way_of(served)
    evaluations, by = ruler_command.evaluations(asked, model.name, sources), None
    if not output.rescore:
        evaluations = ruler_command.with_own_template(evaluations, model, output.runs_dir, way)
        say_all(ruler_command.left_out(asked, model.name, sources), say)
    if not output.rescore or (place, cluster) != (PLACED, CLUSTER):
        by = ruler_copies.answerer(place, cluster, model, output.runs_dir)
    if dry_run:
        dry.local(model, evaluations, output, place, say)
        return
    ended(ruler_command.evaluate(model, evaluations, output, say, by=by, way=way))


def report_ruler(
    models: Annotated[Positional[Names], arg(metavar="MODEL [MODEL]")],
    runs_dir: Folder = Path("runs"),
    report_dir: Folder = Path("report"),
) -> None:
    """Write the report of a language model's stored answers, or of two models on the same questions; asks nothing.

    Args:
        models: one name or two, as their folders in RUNS_DIR/ruler are called, or the paths of such folders
        runs_dir: folder of run directories
        report_dir: folder of reports
    """
    from levelfield.cli import ruler_report_command

    ruler_report_command.report(models, runs_dir, report_dir, say)


def export_ruler(
    tokenizer: Text = "",
    asked: Annotated[EvalOptions, arg(name="")] = ASKED,
    texts: Annotated[TextOptions, arg(name="")] = TEXTS,
    form: Annotated[Literal["lm-eval", "lighteval", "inspect", "jsonl"], arg(name="format")] = "lm-eval",
    folder: Folder = Path("tasks"),
) -> None:
    """Write RULER's samples as tasks of lm-evaluation-harness, of lighteval or of Inspect, or as lines of JSON.

    Args:
        tokenizer: of the model: its folder or file, a name on the hub, bytes or approximate
        form: lm-eval, lighteval or inspect (tasks and their samples), or jsonl (samples alone)
        folder: where the files are written
    """
    from levelfield.cli import dry_run, exchange_commands

    if not tokenizer:
        raise UserError(dry_run.missing_for_export(asked))
    exchange_commands.export(tokenizer, asked, texts, exchange_commands.Target(form, folder), say)


def export_run(
    run_id: Annotated[Positional[str], arg(metavar="RUN_ID")],
    runs_dir: Folder = Path("runs"),
    folder: File = None,
    push: Annotated[Text, arg(metavar="OWNER/NAME")] = "",
    license: Annotated[Text, arg(metavar="NAME")] = "",
) -> None:
    """Write a complete run as a folder that stands by itself: weights, spec, ledger, rows, a card and a loader.

    Args:
        run_id: name of the run's directory, or its path
        runs_dir: folder of run directories
        folder: where it is written (default: exported, and the name of the run)
        push: also upload it to the hub of Hugging Face; needs levelfield[hub]
        license: license of the weights, as the hub names it, such as apache-2.0 (default: unknown)
    """
    from levelfield.cli import exchange_commands
    from levelfield.runs import store

    runs_dir, run_id = store.located(runs_dir, run_id)
    ended(exchange_commands.export_run(runs_dir / run_id, folder or Path("exported") / run_id, push, say, license))


def import_(
    files: Positional[Files],
    model: Text = "",
    length: Annotated[Length, arg(help_behavior_hint="")] = 0,
    runs_dir: Folder = Path("runs"),
    report_dir: Folder = Path("report"),
) -> None:
    """Read an exported run, or answers that other evaluators have stored, whose report is then written.

    Args:
        files: folders of exported runs; or prediction files of RULER (4096/pred/vt.jsonl), logs of samples of lm-eval
            (samples_TASK_DATE.jsonl), details of lighteval (details_TASK_DATE.parquet), logs of Inspect (.eval or
            .json), or folders of such files, where no .json is read
        model: the name under which answers are reported
        length: length in tokens, where neither a file of answers nor its folder says it
        runs_dir: folder of run directories
        report_dir: folder of reports
    """
    from levelfield.cli import exchange_commands

    exchange_commands.import_(files, model, length or None, say, runs_dir=runs_dir, report_dir=report_dir)
