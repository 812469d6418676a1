"""The command line: it parses, loads what was named, calls, and says what went wrong in one sentence.

    levelfield demo
    levelfield plan demo --effort minutes
    levelfield run mine/study.py --only "*attention*" --jobs 4

Exit codes: 0 all is well, 1 some runs failed, 2 the input was wrong, 130 stopped with Ctrl-C. Everything that takes
time to import is imported by the command that needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional, arg
from tyro.extras import SubcommandApp

from levelfield import __version__
from levelfield.spec import Effort, UserError, closest

DESCRIPTION = "A level playing field for long-sequence models."
STOPPED = "stopped; run the same command again to continue"
COMMANDS = ("demo", "list", "plan", "run", "report", "compare", "probe", "ruler", "data", "results")
Kind = Literal["tasks", "mixers", "protocols", "studies", "probes", "kernels"]
StudyName = Annotated[Positional[str], arg(metavar="STUDY")]

app = SubcommandApp()


def say(text: str) -> None:
    print(text, flush=True)


@app.command
def demo(
    out: Path = Path("runs"), data: Path = Path("data"), jobs: int | None = None, to: Path = Path("report")
) -> None:
    """The quick study end to end, then its report.

    Args:
        out: folder of run directories
        data: folder of prepared data
        jobs: worker processes (default: one per core)
        to: folder of reports
    """
    from levelfield import commands
    from levelfield.loading import Source
    from levelfield.worker import Order

    order = Order(Source("demo"), "minutes", out, data)
    study = order.source.load()
    complete = commands.execute(order, study, jobs, say)
    commands.write_report(order.source, study, order.effort, out, to, say)
    _exit(complete)


@app.command(name="list")
def list_(kind: Annotated[Positional[Kind | None], arg(metavar="KIND")] = None) -> None:
    """What there is: tasks, mixers, protocols, studies, probes.

    Args:
        kind: one of them, or kernels: which would run on this machine, and why; all but these without
    """
    from levelfield import listings

    for name, lines in listings.ALL.items():
        if kind == name or (kind is None and name != "kernels"):
            if kind is None:
                say(f"{name}:")
            for label, about in lines():
                say(f"  {label:<16} {about}")


@app.command
def plan(
    study: StudyName, effort: Effort | None = None, only: str = "", out: Path = Path("runs"), trials: int = 0
) -> None:
    """Runs, cost and what differs between the arms; trains nothing.

    Args:
        study: a name, a Python file, or FILE.py:Mixer
        effort: how much compute the study may take (default: minutes; paper where it asks models that exist)
        only: pattern of run ids, such as "*attention*", or of the models it asks
        out: folder of run directories, to see what is done
        trials: recipes to try for every arm first (default: as the study says)
    """
    from levelfield.loading import Source, choose, matches

    loaded = Source.of(study, trials).load()
    if loaded.survey is not None:
        from levelfield import surveying

        say("\n".join(surveying.lines(loaded, effort or "paper", only, out)))
        return
    from levelfield import planning, store, tuning

    effort = effort or "minutes"
    chosen, tuned = tuning.state(loaded, effort, out, lambda run: matches(run, only))
    runs = choose(chosen, effort, only if loaded.search is None else "")
    done = sum(store.complete(store.directory(out, r)) for r in runs)
    for line in planning.lines(runs, done, f"{loaded.name} at effort {effort}"):
        say(line)
    for line in tuned:
        say(line)


@app.command
def run(
    study: StudyName,
    effort: Effort = "minutes",
    only: str = "",
    device: str = "auto",
    engine: Literal["local"] = "local",
    out: Path = Path("runs"),
    data: Path = Path("data"),
    jobs: int | None = None,
    threads: int = 1,
    trials: int = 0,
) -> None:
    """Train, evaluate and measure whatever is not done yet.

    Args:
        study: a name, a Python file, or FILE.py:Mixer
        effort: how much compute the study may take
        only: pattern of run ids, such as "*attention*"
        device: auto, cpu, cuda or cuda:1
        engine: where runs execute
        out: folder of run directories
        data: folder of prepared data
        jobs: worker processes (default: one per core, or one per GPU)
        threads: processor threads of each worker
        trials: recipes to try for every arm first, equally many (default: as the study says)
    """
    from levelfield import commands
    from levelfield.loading import Source
    from levelfield.worker import Order

    order = Order(Source.of(study, trials), effort, out, data, only, device, threads)
    declared = order.source.load()
    _exit(commands.tune(order, declared, jobs, say) and commands.execute(order, declared, jobs, say))


@app.command
def compare(
    mixer: Annotated[Positional[str], arg(metavar="FILE.py:Mixer")],
    tasks: tuple[str, ...] = (),
    protocols: tuple[str, ...] = (),
    effort: Effort = "minutes",
    device: str = "auto",
    out: Path = Path("runs"),
    data: Path = Path("data"),
    jobs: int | None = None,
    to: Path = Path("report"),
    trials: int = 0,
) -> None:
    """Your own nn.Module beside baselines, at equal budget, then the report.

    Args:
        mixer: a file and the class in it, mapping (B, T, D) to (B, T, D)
        tasks: task names (default: the study's own)
        protocols: protocol names (default: the study's own)
        effort: how much compute the study may take
        device: auto, cpu, cuda or cuda:1
        out: folder of run directories
        data: folder of prepared data
        jobs: worker processes (default: one per core, or one per GPU)
        to: folder of reports
        trials: recipes to try for every arm first, your own and the baselines alike (default: none)
    """
    from levelfield import commands
    from levelfield.loading import Source
    from levelfield.worker import Order

    order = Order(Source("compare", mixer, tasks, protocols, trials), effort, out, data, device=device)
    study = order.source.load()
    _exit(commands.tune(order, study, jobs, say))
    complete = commands.execute(order, study, jobs, say)
    commands.write_report(order.source, study, effort, out, to, say)
    _exit(complete)


@app.command
def report(
    study: StudyName,
    effort: Effort = "minutes",
    out: Path = Path("runs"),
    to: Path = Path("report"),
    trials: int = 0,
) -> None:
    """HTML, CSV and figures, from rows alone.

    Args:
        study: a name, a Python file, or FILE.py:Mixer
        effort: the effort it was run at; all answers are shown where it asks models that exist
        out: folder of run directories
        to: folder of reports
        trials: as it was run with
    """
    from levelfield import commands
    from levelfield.loading import Source

    source = Source.of(study, trials)
    if (loaded := source.load()).survey is not None:
        from levelfield import surveying

        surveying.write_report(loaded, out, to, say)
    else:
        commands.write_report(source, loaded, effort, out, to, say)


@app.command
def probe(
    probe: Annotated[Positional[str], arg(metavar="PROBE")],
    run_id: Annotated[Positional[str], arg(metavar="RUN_ID")],
    study: str = "",
    out: Path = Path("runs"),
    data: Path = Path("data"),
    device: str = "auto",
) -> None:
    """One more measurement on a finished run.

    Args:
        probe: name of the probe
        run_id: name of the run's directory
        study: the file that defines the run, where it is not a study of levelfield
        out: folder of run directories
        data: folder of prepared data
        device: auto, cpu, cuda or cuda:1
    """
    from levelfield import store
    from levelfield.loading import find_run
    from levelfield.probes import find
    from levelfield.run import execute

    chosen, found = find(probe), find_run(run_id, out, study)
    where = store.directory(out, found)
    if not store.complete(where):
        raise UserError(f"{run_id} is not complete: run its study first.")
    execute(found, where, data, device, [chosen])
    path = store.probe_file(where, chosen)
    for row in store.read_rows(path):
        say(f"  {row.get('at', ''):<28} {row.get('metric', ''):<16} {row.get('value', float('nan')):.4g}")
    say(f"Wrote {path}")


@app.command
def ruler(
    model: Annotated[Positional[str], arg(metavar="MODEL")],
    table: str = "",
    effort: Effort = "paper",
    lengths: tuple[str, ...] = (),
    tasks: tuple[str, ...] = (),
    depths: tuple[str, ...] = (),
    count: int | None = None,
    seed: int = 42,
    flavour: str = "",
    template: str = "",
    tokenizer: str = "",
    essays: str = "",
    squad: str = "",
    hotpot: str = "",
    device: str = "auto",
    precision: Literal["float32", "bfloat16", "float64"] = "float32",
    published_bug: bool = False,
    rescore: bool = False,
    out: Path = Path("runs"),
    to: Path = Path("report"),
) -> None:
    """How much of its context does a language model use? RULER by task, length and depth.

    Args:
        model: a folder of weights, a name on the Hugging Face hub, or the id of a run that was trained here
        table: a study of printed tables, such as huang2024_table1: asks what that asked
        effort: with --table, how much of it
        lengths: tokens of prompt and answer (default: 1024,2048,4096, or the table's)
        tasks: names of RULER's tasks; all (default), needles (the eight), or sweep (needles by haystack and by value)
        depths: places of the needles, such as 0,0.5,1 (default: each sample its own)
        count: samples of each task and length (default: 100, or the table's)
        seed: of the samples
        flavour: sound (default), official or paper (a table's default)
        template: what stands around the task, such as meta-chat (default: base, or the model's in the table)
        tokenizer: its folder or file, where it is not beside the model
        essays: file, folder or package of essays (default: those that ship)
        squad: dev-v2.0.json of SQuAD, for qa_1
        hotpot: hotpot_dev_distractor_v1.json, for qa_2
        device: auto, cpu, cuda or cuda:1
        precision: of weights and computation
        published_bug: run the hybrid as its reference implementation decodes
        rescore: make rows and figures from stored predictions, without the model
        out: folder of run directories
        to: folder of reports
    """
    from levelfield import asking
    from levelfield.ruler import Sources

    texts = Sources(essays or None, squad or None, hotpot or None)
    steps, places = asking.numbers(lengths, int), asking.numbers(depths, float)
    wish = asking.Wish(table, effort, steps, tasks, places, count, seed, flavour, template)
    asked = asking.Asked(model, tokenizer, device, precision, published_bug, out)
    asking.ask(asked, asking.exams(wish, model, texts), rescore, to, say)


@app.command(name="data")
def data_(
    action: Positional[Literal["prepare", "verify"]],
    task: Annotated[Positional[str], arg(metavar="TASK|all")],
    data: Path = Path("data"),
    sources: Annotated[Path | None, arg(name="from")] = None,
    mirror: tuple[str, ...] = (),
) -> None:
    """Prepare the arrays of a task, downloading official files where it needs them, or check what is prepared.

    Args:
        action: prepare or verify
        task: a task's name, or all
        data: folder of prepared data
        sources: folder of official files that are here already; nothing is downloaded then
        mirror: addresses to ask for official files before the official one; a file's name is appended
    """
    from levelfield import commands

    if action == "prepare":
        _exit(commands.prepare(task, data, sources, mirror, say))
    else:
        _exit(commands.verify(task, data, say))


@app.command
def results(sql: Annotated[Positional[str], arg(metavar="SQL")], out: Path = Path("runs")) -> None:
    """SQL over numbers; a table on a terminal, CSV in a pipe.

    Tables: `scores` (the test score of every run, one row each), `rows` (all that was measured, slices and probes
    too), `studies` (which runs a study is made of), `published` (what the papers print). For example:

    levelfield results "SELECT task, model, protocol, median(value), count(*) FROM scores GROUP BY ALL ORDER BY ALL"

    Args:
        sql: the query; the column "table" is also a word of SQL and needs its quotes
        out: folder of run directories
    """
    from levelfield import commands

    commands.answer(sql, out)


def _exit(well: bool) -> None:
    """With code 1 where something failed that other things did not wait for."""
    if not well:
        raise SystemExit(1)


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script. Always ends the process with an exit code unless all is well."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if words == ["--version"]:
        say(__version__)
        return
    try:
        if not words[0].startswith("-") and words[0] not in COMMANDS:
            raise UserError(f"There is no command '{words[0]}': {closest(words[0], COMMANDS)}")
        app.cli(prog="levelfield", description=DESCRIPTION, args=words, config=(tyro.conf.FlagCreatePairsOff,))
        sys.stdout.flush()
    except UserError as error:
        print(f"levelfield: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print(f"\n{STOPPED}", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
