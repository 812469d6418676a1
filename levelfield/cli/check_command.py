"""Checks what a user or a plug-in adds, and says rule by rule whether it holds: `levelfield check NAME`.

levelfield check mine.py:Mine           a mixer: the contract of all mixers, in both directions
levelfield check "my_task.py:Lookup(train=200, val=50, test=50)"
levelfield check tinylab.study          a study: its runs at every effort that it has
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from types import FunctionType

from torch import Generator

from levelfield import mixers, tasks
from levelfield.cli.streams import Say
from levelfield.contract import findings as mixer_findings
from levelfield.data import findings as task_findings
from levelfield.engine.find import Source, listed
from levelfield.objectives import default_objective
from levelfield.presets import arm_remarks, by_name, efforts
from levelfield.probes import PROBES
from levelfield.run import build_net
from levelfield.run import check as check_run
from levelfield.spec import EFFORTS, MixerConfig, Probe, Progress, Run, Study, Task, UserError, closest
from levelfield.spec.errors import format_error
from levelfield.spec.reseeding import SetsSeed
from levelfield.user import named, own_files, plugins, values
from levelfield.user.mixer import load_user_mixer, offered

Findings = Iterator[tuple[str, str]]
Section = tuple[str, Findings | None]  # what is examined, None where the title says why nothing is
SOME = {"train": 2_400, "val": 240, "test": 240}  # examples of a ready-made task: whole classes of up to six twins


def check(name: str, width: int, sources: Path | None, say: Say) -> bool:
    """Says what holds of everything of that name; returns whether all does. Raises UserError for an unknown name."""
    sound, told, ways = True, set[tuple[str, str]](), ""
    for title, findings in _found(name, width, sources):
        say(f"{title}:" if findings else title)
        ways = ways if findings else ", in both directions"
        again, unreached = Counter[str](), 0
        for rule, fault in findings or ():
            mark = "ok" if not fault else "note" if rule in mixer_findings.NOTES else "FAULT"
            same = (rule, re.sub(r"causal=(True|False)", "causal", fault))
            if fault == mixer_findings.NOT_REACHED:
                unreached += 1
            elif same in told:
                again[mark.lower()] += 1
            else:
                say(f"  {mark:<5}  {rule}{f': {fault}' if fault else ''}")
                told |= {same} if fault else set()
                sound &= mark != "FAULT"
        for line in _in_short(again, unreached):
            say(f"  -      {line}")
    say(f"All of it holds{ways}." if sound else "Mend what is marked FAULT, then check again.")
    return sound


def _in_short(again: Counter[str], unreached: int) -> Iterator[str]:
    """Yields a line for what the other direction has told already, and one for the rules that were not reached."""
    if again:
        counts = (f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in again.items())
        yield f"here too: {' and '.join(counts)} of those above"
    if unreached:
        many = f"{unreached} rules are" if unreached > 1 else "1 rule is"
        yield f"{many} {mixer_findings.NOT_REACHED}"


def _found(name: str, width: int, sources: Path | None) -> Iterator[Section]:
    """Yields what has that name: a title, and its findings."""
    if own_files.is_data(name) and Path(name).exists():
        raise UserError(
            f"{name} is data and no code to check: name its columns to `{shlex.join(['levelfield', 'audit', name])}`, "
            "with --text and --label for example."
        )
    if named.is_named(name):
        yield from _of(name, _loaded(name), width, sources)
        return
    named.require_colon(name)
    plain = by_name.without_settings(name)
    if named.is_file(plain) or "." in plain:
        yield f"the study {name}", _study(name)
        return
    known = {
        "mixer": by_name.is_mixer(name),
        "task": by_name.is_task(name),
        "probe": name in [each.name for each in PROBES] or name in plugins.plugins("probes"),
    }
    for kind, find in (("mixer", by_name.mixer), ("task", by_name.task), ("probe", by_name.probe)):
        if known[kind]:
            title, found = name, find(name)
            if isinstance(found, Task) and plain == name and (fewer := _fewer(found)) != found:
                title, found = f"{name} of at most {SOME['train']:,} examples (others: {name}(train=...))", fewer
            yield from _of(title, found, width, sources)
    if name in listed():
        yield f"the study {name}", _study(name)
    elif not any(known.values()):
        ours = [*mixers.NAMES, *tasks.names(), *(each.name for each in PROBES), *listed()]
        added = [each for of in ("mixers", "tasks", "probes") for each in plugins.plugins(of)]
        raise UserError(f"Nothing is called '{plain}': {closest(plain, [*ours, *added], 'levelfield list')}")


def _fewer(task: Task) -> Task:
    """A task that is drawn has at most SOME examples here, since the rules are those of its code."""
    names = [each.name for each in fields(task) if each.name in SOME]  # pyright: ignore[reportArgumentType]
    if len(names) < len(SOME) or task.archives:
        return task
    try:
        return replace(task, **{name: min(getattr(task, name), SOME[name]) for name in names})  # pyright: ignore
    except UserError:
        return task


def _loaded(where: str) -> MixerConfig | Task | Probe:
    """Loads FILE.py:Name, which may be a task, a probe or a mixer."""
    place, call = named.split(where)
    module, name = values.loaded(place), call.partition("(")[0].strip()
    kept = vars(module).get(name)
    for kind in (Task, Probe):
        if isinstance(kept, kind) or (isinstance(kept, type) and issubclass(kept, kind)):
            return values.value(where, kind)
        if isinstance(kept, FunctionType):  # which makes a task or a probe, unless it wants a width
            with suppress(UserError):
                return values.value(where, kind)
    others = [each for kind in (Task, Probe) for each in values.offered(module, kind)]
    if others and getattr(module, name, None) is None:
        known = [*offered(module), *others]
        raise UserError(f"{place} defines nothing called {name}: {closest(name, known)}")
    return load_user_mixer(where)


def _of(name: str, found: MixerConfig | Task | Probe, width: int, sources: Path | None) -> Iterator[Section]:
    if isinstance(found, Task):
        yield f"the task {name}", task_findings.examine(found, sources, _bars)
    elif isinstance(found, Probe):
        yield f"the probe {name}", _probe(found)
    else:
        used = _taken(found, width)
        at = f"width {used}" if used == width else f"width {used}, as it does not take {width}"
        for causal in (False, True) if found.directions == MixerConfig.directions else ("causal" in found.directions,):
            if causal and arm_remarks.ahead(found, used):
                yield (
                    f"{name} takes no `causal` and looks ahead: it is examined and compared in both directions "
                    f"only. {arm_remarks.MEANT}",
                    None,
                )
                continue
            way = "seeing earlier steps alone" if causal else "seeing both directions"
            steps = {min(each, found.max_length or each) for each in (mixer_findings.STEPS, *_lengths())}
            *fewer, most = (f"{each:,}" for each in sorted(steps))
            over = f"{', '.join(fewer)} and {most}" if fewer else most
            examined = mixer_findings.examine(found, used, causal, lengths=_lengths())
            yield f"the mixer {name} at {at}, on {over} steps, {way}", examined


def _taken(mixer: MixerConfig, width: int) -> int:
    """Returns the width, or twice or four times as much where a mixer takes that alone, such as one of wide heads."""
    causal = "causal" in mixer.directions
    for factor in (1, 2, 4):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SetsSeed)  # which the findings say
                mixer.build(factor * width, causal=causal, layer=0, generator=Generator().manual_seed(0))
            return factor * width
        except UserError:
            continue
        except Exception:  # whatever a user's own layer raises is left to the findings
            break
    return width


def _lengths() -> list[int]:
    """The steps of the tasks that a comparison takes when nothing else is said."""
    return [efforts.sized_task(name, "minutes").max_length for name in efforts.TASKS]


@contextmanager
def _bars() -> Iterator[Progress]:
    """Shows progress on a terminal, until the next line is said: a bar that is alive takes what is printed."""
    from levelfield.cli.data_commands import bars, shown

    with bars() as bar:
        yield shown(bar)


def _probe(probe: Probe) -> Findings:
    """Measures an untrained model on a tiny task."""
    yield "it has a name", "" if isinstance(getattr(probe, "name", None), str) else "Give the class a `name`."
    task = efforts.generated("recall", "smoke")
    model = efforts.model("recall", efforts.ATTENTION, "smoke")
    (protocol,) = efforts.protocols("recall", "smoke", ("scratch",))
    run = Run(task, model, protocol, 0)
    net = build_net(run, default_objective(task)).eval()

    def measure() -> None:
        for row in probe.measure(net, run, lambda given: given.build(None)):
            if "metric" not in row or "value" not in row:
                raise UserError(f"A row has {', '.join(row)}: give it `metric` and `value`.")

    yield "it measures a small untrained model", _fault(measure)


def _study(name: str) -> Findings:
    """Makes the runs of every effort, and asks the verdict without any rows."""
    loaded: list[Study] = []
    yield "it loads and defines a study", _fault(lambda: loaded.append(Source(name).load()))
    if not loaded:
        return
    study, some = loaded[0], False
    for effort in EFFORTS:
        runs: list[Run] = []
        fault = _fault(lambda e=effort, r=runs: r.extend(study.runs(e)))  # pyright: ignore[reportArgumentType]
        some |= bool(runs)
        yield f"its runs at {effort} can be made ({len(runs)})", fault or _fault(lambda r=runs: [*map(check_run, r)])
    yield "it has runs at some effort", "" if some else "Let `runs` return some for at least one effort."
    if study.verdict is not None:
        yield "its verdict says something before any run", _fault(lambda: _asked(study))


def _asked(study: Study) -> None:
    assert study.verdict is not None
    if not isinstance(study.verdict([]), str):
        raise UserError("The verdict of no rows is no text: say that nothing can be said yet.")


def _fault(rule: Callable[[], object]) -> str:
    try:
        rule()
    except UserError as error:
        return str(error)
    except (Exception, SystemExit) as error:  # whatever a user's own code raises
        return format_error(error)
    return ""
