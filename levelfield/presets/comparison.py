"""Compares a user's own mixer with baselines: defines the study that `levelfield compare FILE.py:Mixer` runs.

Every arm has the same blocks, recipe, number of steps (or FLOPs, where they are asked to be equal) and, as nearly as
widths allow, of parameters. Where the user's mixer or a baseline sees earlier steps alone, all arms do. The user's arms
come first, so that their report does too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache

from levelfield import contract
from levelfield.mixers import NAMES
from levelfield.mixers.conv import Conv
from levelfield.presets import by_name, efforts
from levelfield.presets.options import USUAL, Options
from levelfield.probes.effective_context import EffectiveContext
from levelfield.probes.extrapolation import Extrapolation
from levelfield.probes.slices import Slices
from levelfield.protocols import causal_where_needed
from levelfield.report.decisions import ALPHA, AtMost, Every, Question, Seeds, difference, holm
from levelfield.report.part_rules import beside_parts
from levelfield.report.verdicts import EXPLAINED, Key, Table
from levelfield.runs.ledger import match_width, step_flops, trained
from levelfield.spec import (
    UNTUNED,
    Duration,
    Effort,
    MixerConfig,
    Model,
    Probe,
    Protocol,
    ReportView,
    Row,
    Run,
    Study,
    Task,
    UserError,
    digest,
)
from levelfield.spec.study import SHARES
from levelfield.user.own_data import OwnData

BASELINES: tuple[MixerConfig, ...] = (efforts.ATTENTION, efforts.S4_DIAGONAL, Conv(kernel=5, hidden=64))
NAMED: tuple[MixerConfig, ...] = (*efforts.SMALL, *BASELINES)
"""What a name means in a comparison, where it does not mean the mixer's usual settings."""
PROTOCOLS = ("scratch", "spt_masked")
LONGEST = 60  # letters of a model's name
WIDTHS = 8  # baselines have a multiple of it as their width, where one is near


def compare(mixer: MixerConfig, options: Options = USUAL) -> Study:
    """Returns the study of one mixer, by default on `efforts.TASKS` beside BASELINES by PROTOCOLS.

    Another source or setting is another study, so its name ends in a part of their hash. Its runs raise UserError
    for an unknown name, and for whatever the contract finds wrong with the mixer.
    """
    names, protocols = chosen_tasks(options), options.protocols or PROTOCOLS

    def runs(effort: Effort) -> tuple[Run, ...]:
        size = efforts.sized(effort, options.numbers)
        given = [efforts.sized_task(name, effort) for name in names]
        _require_own_names(names, given)
        chosen = [efforts.protocols(name, effort, protocols, size) for name in names]
        back = _checked(list(arms(mixer, options).values()), size.width, protocols, given)
        cells: list[tuple[Task, Model, Protocol]] = []
        for name, of, several in zip(names, given, chosen, strict=True):
            own, *others = models(mixer, name, effort, options, back)
            if options.equal == "flops":
                several = efforts.protocols(name, effort, protocols, size, total=_flops(own, of, size))
            cells += [(of, causal_where_needed(model, p), p) for model in (own, *others) for p in several]
        return tuple(Run(*one, seed) for one in cells for seed in range(size.seeds))

    return Study(
        name=study_name(mixer),
        claim=f"At equal budget and parameters, {own_name(mixer)} scores higher than the baselines.",
        runs=runs,
        views=(
            ReportView("scorecard", "Scorecard: what each model learns of each task"),
            ReportView("gap", "By protocol, at equal budget"),
            ReportView("compare", "Every seed of every arm"),
            ReportView("curve", "Longer than in training", axis="length"),
            ReportView(
                "curve", "How far each model looks: the gradient by distance", metric="gradient_share", axis="distance"
            ),
            ReportView("slices", "Where the score comes from"),
            ReportView("training", "Training curves"),
        ),
        probes=probes,
        verdict=lambda rows: verdict(own_name(mixer), rows),
        deviations=(
            UNTUNED,
            "The budget of all arms is the same number of steps or, with --equal flops, of FLOPs: the ledger has both.",
            "Where the mixer or a baseline sees earlier steps alone, all arms are built to see earlier steps alone.",
            "No model is given positions: a layer that has none of its own, such as linear or performer, sees no "
            "order in two directions. The plan, the command and the page name such models.",
            "Fewer than three seeds an arm decide nothing, and three only differences that are large beside their "
            "scatter: docs/verdicts.md says how large.",
        ),
    )


def shared(effort: Effort, options: Options) -> object:
    """Returns what all arms of a comparison have alike besides the task, which the number of seeds is none of: runs of
    different ones are never judged together."""
    size = replace(efforts.sized(effort, options.numbers), seeds=0)
    return size if options.equal == "steps" else [size, options.equal]


@cache  # runs are asked for several times in a command
def _flops(model: Model, of: Task, size: efforts.Size) -> Duration:
    """Returns the FLOPs that a model takes for the steps of a size, to three digits."""
    return Duration(float(f"{size.steps * step_flops(model, of, size.batch):.2e}"), "flops")


def chosen_tasks(options: Options) -> tuple[str | Task, ...]:
    """Returns the tasks or their names, each once: those that were given, the members of groups, or the usual."""
    parts = (efforts.GROUPS.get(name, (name,)) if isinstance(name, str) else (name,) for name in options.tasks)
    return tuple(dict.fromkeys(name for part in parts for name in part)) or efforts.TASKS


def _require_own_names(names: Sequence[str | Task], given: Sequence[Task]) -> None:
    """Raises UserError for tasks of one name, whose scores would be taken for seeds of one cell."""
    first: dict[str, str] = {}
    for name, of in zip(names, given, strict=True):
        text = str(of.path) if isinstance(of, OwnData) else str(name)
        other = first.setdefault(of.name, text)
        if other != text:
            raise UserError(
                f"{other} and {text} are both called {of.name} in tables, so their scores would be mixed: compare on "
                "one of them at a time."
            )


def _checked(mixers: Sequence[MixerConfig], width: int, protocols: Sequence[str], given: Sequence[Task]) -> bool:
    """Tells whether arms must be built to see earlier steps alone on every task, as one of them does.

    mixers: the one that is compared, and its baselines. Raises UserError for whatever is wrong with any whose code is
    not levelfield's own; those that ship keep the contract in every test.
    """
    padded, lengths = any(of.padded for of in given), tuple(sorted({of.max_length for of in given}))
    examined = [each for each in mixers if each.opaque]
    ahead = all("bidirectional" in each.directions for each in mixers)
    wanted = {p == "spt_causal" or of.causal or not ahead for p in protocols for of in given}
    for mixer in examined:
        for causal in sorted(wanted):
            _check(mixer, width, causal, lengths, padded)
    if True in wanted and False not in wanted:
        return not ahead  # else every arm is causal as it is
    back = any(not contract.looks_ahead(mixer, width, lengths[-1]) for mixer in examined)
    if back:
        for mixer in examined:
            _check(mixer, width, True, lengths, padded)
    return back


@cache
def _check(mixer: MixerConfig, width: int, causal: bool, lengths: tuple[int, ...], padded: bool) -> None:
    contract.check(mixer, width, causal, lengths=lengths, padding=padded)


def arms(mixer: MixerConfig, options: Options = USUAL) -> dict[str, MixerConfig]:
    """Returns the mixer and its baselines by names that no two of them share: BASELINES, or those that were given.

    A baseline whose name another arm has gets what differs added: "conv-kernel9" beside "conv-kernel5". One that is
    the mixer itself is left out, and so are BASELINES of its name. Raises UserError for an unknown name.
    """
    own = own_name(mixer)
    named = [by_name.mixer(name, NAMED) for name in dict.fromkeys(options.baselines)]
    given = list(dict.fromkeys(each for each in named if each != mixer))
    if named and not given:
        raise UserError(
            f"The only baseline of {own} is {own} itself: name another one, or leave baselines out for the usual ones."
        )
    given = given or [each for each in BASELINES if each.label != own]
    names = Counter([own, *map(own_name, given)])
    found = {own: mixer}
    for each in given:
        name = own_name(each)
        alike = [other for other in (mixer, *given) if own_name(other) == name]
        found[name if names[name] == 1 else _apart(name, each, alike)] = each
    return found


def _apart(name: str, mixer: MixerConfig, alike: Sequence[MixerConfig]) -> str:
    """Returns a name with the settings by which a mixer differs from others of that name, as folders may be called."""
    known = [_settings(each) for each in alike]
    own = _settings(mixer)
    differ = [key for key in own if any(other.get(key) != own[key] for other in known)]
    text = "-".join([name, *(re.sub(r"[^A-Za-z0-9_.+-]+", "-", f"{key}{own[key]}") for key in differ)])
    return text if differ and len(text) <= LONGEST else f"{name}-{digest(mixer)[:6]}"


def _settings(mixer: MixerConfig) -> dict[str, object]:
    if mixer.opaque:
        return dict(getattr(mixer, "settings", ()))
    return {each.name: getattr(mixer, each.name) for each in fields(mixer)}


@cache
def models(
    mixer: MixerConfig, name: str | Task, effort: Effort, options: Options = USUAL, back: bool = False
) -> tuple[Model, ...]:
    """Returns the user's model, then the baselines at the widths whose parameter counts are nearest to it.

    back: whether all of them see earlier steps alone, on tasks of either direction too. At widths that are no multiples
    of WIDTHS, which a baseline of unknown code may refuse in its calls alone, the contract is asked.
    """
    of, size = efforts.sized_task(name, effort), efforts.sized(effort, options.numbers)

    def count(model: Model) -> int:
        (each,) = model.mixers
        if each.opaque and model.width % WIDTHS:
            contract.check(each, model.width, model.causal, min(contract.SHORT, of.max_length), of.padded)
        return trained(model, of)

    def made(each: MixerConfig, label: str | None = None) -> Model:
        model = efforts.model(name, each, effort, label, size)
        return replace(model, causal=model.causal or back)

    (first, _), *others = arms(mixer, options).items()
    own, shapes = made(mixer, first), [made(each, label if label != each.label else None) for label, each in others]
    return own, *(match_width(shape, count, trained(own, of), WIDTHS, finer=True) for shape in shapes)


def study_name(mixer: MixerConfig) -> str:
    """Returns the name of the comparison of a mixer, which ends in a part of its hash."""
    return f"compare-{own_name(mixer)}-{digest(mixer)[:6]}"


def own_name(mixer: MixerConfig) -> str:
    """Returns the mixer's label, that of unknown code told apart from a mixer of the same name that ships."""
    return f"my_{mixer.label}" if mixer.opaque and mixer.label in NAMES else mixer.label


def probes(run: Run) -> Sequence[Probe]:
    """Measures longer sequences where the task has them in a size that a laptop can take; of a user's own task nothing
    is known, whatever it is called."""
    ours = {type(each) for each in efforts.TASK_BY_EFFORT.get(run.task.name, {}).values()}
    longer = {"listops": (1, 2), "pathfinder": ()}.get(run.task.name, (1, 2, 4)) if type(run.task) in ours else ()
    return (*([Extrapolation(longer, examples=500)] if longer else []), EffectiveContext(), Slices())


def verdict(label: str, rows: Sequence[Row]) -> str:
    """Says how many comparisons the mixer wins, and each of them in a sentence."""
    table = Table.of_all(rows)
    keys = [key for key in table.cells if key.model == label and _others(key, table)]
    undefined = dict.fromkeys(row.get("task", "") for row in rows if _has_no_score(label, row))
    lost = f"the score of {label} on {', '.join(undefined)} is undefined, as where all test targets are equal."
    if not keys:
        why = lost if undefined else "no run of the mixer beside a baseline has finished."
        return f"Nothing can be said{'' if undefined else ' yet'}: {why}"
    decided = questions(label, rows)
    answers = holm(decided)
    counts = Counter(answers.get(key, 0) for key in keys)
    undecided = len(keys) - counts[1] - counts[-1]
    rest = f"; {undecided} {'is' if undecided == 1 else 'are'} not decided" if undecided else ""
    head = (
        f"{label} is above every baseline in {counts[1]} of {len(keys)} comparisons and below some baseline in "
        f"{counts[-1]}{rest}."
    )
    lost_all = _diverged(rows)
    said = [head, *(_sentence(label, key, answers.get(key), table, diverged=key in lost_all) for key in keys)]
    if explained := [task for task in Table.of(rows, metrics=EXPLAINED).tasks if task in {key.task for key in keys}]:
        said.append(f"Percent are of the variance explained on {', '.join(explained)}.")
    if undefined:
        said.append(f"{lost[0].upper()}{lost[1:]}")
    return " ".join(said)


def _has_no_score(label: str, row: Row) -> bool:
    """Whether a finished run of the mixer has no score of the test split that could be ranked."""
    ranked = row.get("metric") in (*SHARES, *EXPLAINED) and row.get("split") == "test" and not row.get("at")
    return ranked and row.get("model") == label and row.get("status") == "undefined"


def _diverged(rows: Sequence[Row]) -> set[Key]:
    """Returns the arms whose finished seeds all diverged, so that their scores are of weights kept before."""
    statuses: dict[Key, set[str]] = {}
    for row in rows:
        if row.get("metric") in (*SHARES, *EXPLAINED) and row.get("split") == "test" and not row.get("at"):
            arm = Key(row.get("task", ""), row.get("model", ""), row.get("protocol", ""))
            statuses.setdefault(arm, set()).add(row.get("status", ""))
    return {arm for arm, found in statuses.items() if found == {"diverged"}}


def questions(label: str, rows: Sequence[Row]) -> dict[Key, Question]:
    """Asks, by task and protocol, whether the mixer is above every baseline or below one.

    Nothing is asked where nobody has learnt more than the best simple rule; where the mixer itself has not, or all of
    its seeds diverged, it can be below but not above.
    """
    table, lost = Table.of_all(rows), _diverged(rows)
    asked: dict[Key, Question] = {}
    for key in (key for key in table.cells if key.model == label):
        others, scatter = _others(key, table), table.scatter(key.task)
        if not others or not any(table.learnt(k) for k in (key, *others)):
            continue
        above = Every(tuple(difference(table.cells[key], other, 0.0, scatter) for other in others.values()))
        asked[key] = above if table.learnt(key) and key not in lost else AtMost(above)
    return asked


def _others(key: Key, table: Table) -> dict[Key, Seeds]:
    """Returns the baselines on the same task under the same protocol."""
    return {k: arm for k, arm in table.cells.items() if k == key._replace(model=k.model) and k.model != key.model}


def _sentence(label: str, key: Key, answer: int | None, table: Table, *, diverged: bool) -> str:
    own, others, rule = table.cells[key], _others(key, table), table.rule(key.task)
    best = max(others, key=lambda k: others[k].mean)
    where, rival = f"On {key.task} under {key.protocol}", f"the best baseline, {best.model} at {others[best]}"
    if answer is None:
        return f"{where}, nothing can be said: no arm is shown to beat the best simple rule, {rule}; {label} has {own}."
    word = {1: "is above", -1: "is below", 0: "is not ranked above" if diverged else "cannot be told apart from"}[
        answer
    ]
    if answer == -1:
        leads = {k: difference(own, other, scatter=table.scatter(key.task)) for k, other in others.items()}
        above = [k for k, lead in leads.items() if lead.decide(ALPHA / len(others)) < 0]
        if above and best not in above:  # which is best by a lucky seed
            clear = max(above, key=lambda k: others[k].mean)
            rival = f"{clear.model} at {others[clear]}, and is not shown to be below {rival}"
    apart = " All of its seeds diverged: an arm that comes apart is never above another." if diverged else ""
    short = "" if table.learnt(key) else f" It cannot be shown to beat the best simple rule, {rule}."
    part = beside_parts(table, key.task, {label: own, best.model: others[best]})
    return f"{where}, {label}, {own}, {word} {rival}.{apart}{short}{part}"
