"""Does self-pretraining help more where labels are scarce?

    levelfield run amos2025_labels --effort overnight
    levelfield report amos2025_labels --effort overnight

amos2025 finds that the fewer data there are, the more self-pretraining brings. Here a rotary Transformer pretrains on
all inputs of a task and learns from a share of its labels, beside the same model that sees those labels alone. One task
is natural, and one is a positive control: in-context recall, in which the inputs themselves repeat what is asked, so
that pretraining must help where labels do not suffice. If it did not, the fault would be ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from levelfield.objectives import default_objective
from levelfield.presets import efforts
from levelfield.probes.slices import Slices
from levelfield.protocols import named_by_share, scarce, share_of
from levelfield.report.decisions import Contrast, difference
from levelfield.report.verdicts import Claim, Finding, Key, Table, judged_by_task, summed_up
from levelfield.spec import Effort, Model, Protocol, ReportView, Row, Run, Study, Task
from levelfield.studies import _deviations as same
from levelfield.studies._amos2025_small import SCRATCH, TRANSFORMER, before_and_after, mixers, task
from levelfield.tasks.in_context_recall import InContextRecall

CONTROL = "in_context_recall"
TASKS = (CONTROL, "image")  # what needs official files comes last
SHARES: Mapping[str, tuple[float, ...]] = {CONTROL: (0.0025, 0.01, 1.0), "image": (0.01, 0.1, 1.0)}
"""Of the labels, from the fewest on; of 20,000 sequences and of 45,000 pictures."""
SHARES_AT_SMOKE = (0.5, 1.0)


def data(name: str, effort: Effort) -> Task:
    """Returns the pictures of `amos2025_small`, or sequences of 64 steps."""
    if name != CONTROL:
        return task(name, effort)
    small = InContextRecall(64, train=20_000, val=2_000, test=5_000)
    return small if effort == "overnight" else efforts.generated(name, effort)


def pretrained(name: str) -> str:
    """Returns the protocol that the task's models are pretrained by: next-step prediction where they read forward."""
    return "spt_causal" if name == CONTROL else "spt_masked"


def protocols(name: str, effort: Effort, share: float) -> Iterator[Protocol]:
    """Yields two: a share of the labels alone, and the same after pretraining on all inputs."""
    goal = default_objective(data(name, effort))
    for protocol in before_and_after(name, effort, causal=name == CONTROL, objective=goal):
        yield scarce(protocol, share)


def model(name: str, effort: Effort) -> Model:
    """Returns the Transformer of `amos2025_small`, which reads forward on in-context recall."""
    return efforts.model(name, mixers()[TRANSFORMER], effort, TRANSFORMER)


def runs(effort: Effort) -> tuple[Run, ...]:
    """Task by task and seed by seed, both protocols with every share of the labels."""
    names = TASKS[:-1] if effort == "smoke" else TASKS
    return tuple(
        Run(data(name, effort), model(name, effort), protocol, seed)
        for name in names
        for seed in range(efforts.SIZES[effort].seeds)
        for share in (SHARES_AT_SMOKE if effort == "smoke" else SHARES[name])
        for protocol in protocols(name, effort, share)
    )


def verdict(rows: Sequence[Row]) -> str:
    """Task by task and share by share, what is shown beyond the noise of seeds and test examples."""
    return summed_up(rows, findings(rows), "Nothing can be said yet: no task has both arms with one share of labels.")


def findings(rows: Sequence[Row]) -> list[Finding]:
    """A lift is asked for at every share, and whether it is larger with the fewest labels than with all."""
    return judged_by_task(Table.of(rows), _claims)


def _claims(name: str, table: Table) -> Iterator[tuple[str, Claim]]:
    """Yields every question, once one share has both arms. Nothing is asked of a share that has not been run in both
    ways, or where neither arm has learnt."""
    pairs = {s: _pair(name, s) for s in _planned(name, table)}
    absent = {s: [key for key in pair if key not in table.cells] for s, pair in pairs.items()}
    if all(absent.values()):
        return
    able = {s: any(table.learnt(key) for key in pair) for s, pair in pairs.items()}
    for share, pair in pairs.items():
        subject = f"self-pretraining lifts the Transformer with {_percent(share)} of the labels"
        if absent[share]:
            yield subject, Claim(None, _not_run(name, absent[share]))
            continue
        before, after = (table.cells[key] for key in pair)
        facts = f"On {name} with {_percent(share)} of the labels, {before} from scratch and {after} pretrained."
        question = difference(after, before, 0.0, table.scatter(name)) if able[share] else None
        yield subject, Claim(question, facts)
    yield "and more so with the fewest than with all", _growth(name, table, pairs)


def _growth(name: str, table: Table, pairs: Mapping[float, Sequence[Key]]) -> Claim:
    """Whether the lift is larger with the smallest share that is planned than with all labels."""
    both = pairs[min(pairs)], pairs[1.0]
    if absent := [key for pair in both for key in pair if key not in table.cells]:
        return Claim(None, _not_run(name, absent))
    few, whole = ([table.cells[key] for key in pair] for pair in both)
    terms = ((1.0, few[1]), (-1.0, few[0]), (-1.0, whole[1]), (1.0, whole[0]))
    able = all(any(table.learnt(key) for key in pair) for pair in both)
    lifts = [difference(after, before).shown for before, after in (few, whole)]
    facts = f"The lift is {lifts[0]} points with the fewest labels and {lifts[1]} with all."
    return Claim(Contrast(terms, scatter=table.scatter(name)) if able else None, facts)


def _planned(name: str, table: Table) -> tuple[float, ...]:
    """Returns all shares of a task that are run together, whichever of them are there."""
    found = {share_of(key.protocol) for key in table.cells if key.task == name}
    return SHARES_AT_SMOKE if SHARES_AT_SMOKE[0] in found else SHARES.get(name, SHARES["image"])  # image8 among them


def _pair(name: str, share: float) -> list[Key]:
    """Returns the arms from scratch and pretrained with a share of the labels."""
    return [Key(name, TRANSFORMER, named_by_share(protocol, share)) for protocol in (SCRATCH, pretrained(name))]


def _not_run(name: str, absent: Sequence[Key]) -> str:
    arms, one = " and ".join(key.protocol for key in absent), len(absent) == 1
    return f"On {name}, {arms} {'has' if one else 'have'} not been run."


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


study = Study(
    name="amos2025_labels",
    claim=(
        "Self-pretraining on a task's own inputs lifts a Transformer the more, the fewer labels there are (amos2025): "
        "on in-context recall, where it must, and on pictures."
    ),
    runs=runs,
    search=efforts.SEARCH,
    views=(
        ReportView("curve", "By the share of labels", axis="fraction"),
        ReportView("compare", "Every seed of every arm"),
        ReportView("training", "Training curves"),
    ),
    probes=lambda run: (Slices(),),
    verdict=verdict,
    deviations=(
        "Pretraining reads all inputs of the training split, and labels are scarce. The paper's code takes the same "
        "share of the data in both phases.",
        "No arm from scratch has the steps of pretraining added: each phase ends where validation has stopped "
        "improving, and a hundredth of the labels is learnt by heart long before. With all labels, the arm with added "
        "steps is one of `amos2025_small`.",
        "The validation split stays whole, so that training ends at the right time even where it has few labels.",
        "CIFAR-10 pooled to 8 x 8 pixels, and sequences of 64 steps with 8 keys and 8 values: no printed number "
        "belongs beside these.",
        same.RECALL,
    ),
)
