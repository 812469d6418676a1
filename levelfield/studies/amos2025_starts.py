"""Does a state-space model's initialisation stop mattering once it is self-pretrained?

    levelfield run amos2025_starts --effort overnight
    levelfield report amos2025_starts --effort overnight

amos2025 finds that S4's initial values, designed for long sequences, and its structure are needed from scratch and
hardly any more after self-pretraining (figure 2). Here S4 from random initial values, and a diagonal linear RNN (DLR)
from designed and from random ones, stand beside S4 as it is, from scratch and after masked self-pretraining. The task
is the pictures of `amos2025_small`, and the runs of its S4 are the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from levelfield.mixers.dlr import DLR
from levelfield.mixers.s4 import S4
from levelfield.presets import efforts
from levelfield.probes.slices import Slices
from levelfield.report.decisions import AtMost, Contrast, Question, Seeds, difference
from levelfield.report.scatter import Scatter
from levelfield.report.verdicts import Claim, Finding, Key, Table, judged_by_task, summed_up
from levelfield.spec import Effort, MixerConfig, ReportView, Row, Run, Study
from levelfield.studies import _deviations as same
from levelfield.studies._amos2025_small import SCRATCH, SPT, SSM, before_and_after, mixers, task

STATES = 64  # of DLR; the paper has 1,024
OTHERS: Mapping[str, MixerConfig] = {
    "s4_random": S4(init="random"),
    "dlr": DLR(STATES, lr=S4.lr),
    "dlr_random": DLR(STATES, "random", lr=S4.lr),
}
"""What is compared with S4 from its designed start, by the name of the model."""
MARGIN = 3.0
"""Points below S4 up to which a model counts as level with it; figure 2's DLR is 5.8 below, and 1.1 pretrained."""


def runs(effort: Effort) -> tuple[Run, ...]:
    """Model by model and seed by seed, both protocols; at `smoke` on ListOps, which needs no files."""
    name = "listops" if effort == "smoke" else "image"
    return tuple(
        Run(task(name, effort), efforts.model(name, mixer, effort, label), protocol, seed)
        for label, mixer in ({SSM: mixers()[SSM]} | dict(OTHERS)).items()
        for seed in range(efforts.SIZES[effort].seeds)
        for protocol in before_and_after(name, effort)
    )


def verdict(rows: Sequence[Row]) -> str:
    """Question by question, what is shown beyond the noise of seeds and test examples."""
    return summed_up(rows, findings(rows), "Nothing can be said yet: no model stands beside S4 with all of its cells.")


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Each other model: is it behind S4 from scratch, by less once both are pretrained, and level then?"""
    return judged_by_task(Table.of(rows), _claims)


def _claims(name: str, table: Table) -> Iterator[tuple[str, Claim]]:
    """Only of models with both cells, beside an S4 with both. Nothing is asked where neither has learnt."""
    keys = {model: [Key(name, model, protocol) for protocol in (SCRATCH, SPT)] for model in (SSM, *OTHERS)}
    whole = {model: pair for model, pair in keys.items() if all(key in table.cells for key in pair)}
    if SSM not in whole:
        return
    arms = {model: [table.cells[key] for key in pair] for model, pair in whole.items()}
    scatter = table.scatter(name)
    for model in (model for model in OTHERS if model in whole):
        (plain, after), (s4_plain, s4_after) = arms[model], arms[SSM]
        able = any(table.learnt(key) for key in (*whole[model], *whole[SSM]))
        lag = difference(s4_plain, plain, MARGIN, scatter)
        level = difference(after, s4_after, -MARGIN, scatter)
        facts = f"On {name}, {model} has {plain} from scratch and {SSM} {s4_plain}."
        yield f"{model} is behind S4 from scratch", Claim(lag if able else None, facts)
        less = _less((plain, s4_plain), (after, s4_after), scatter)
        facts = f"{model} has {after} pretrained and {SSM} {s4_after}."
        facts += "" if less else f" It is not behind {SSM} from scratch."
        yield f"{model} is behind by less once both are pretrained", Claim(less if able else None, facts)
        ahead = after.mean >= s4_after.mean
        apart = difference(after, s4_after) if ahead else difference(s4_after, after)
        side = f"{apart.told(f'{apart.value:.1f}')} points {'ahead of' if ahead else 'behind'} {SSM}"
        yield (
            f"{model} is level with S4 once both are pretrained",
            Claim(level if able else None, f"{model} is then {side}."),
        )


def _less(before: tuple[Seeds, Seeds], after: tuple[Seeds, Seeds], scatter: Scatter) -> Question | None:
    """Whether a model is behind S4 by less than before, or ahead of it; never found so of one that has lost. None of a
    model that was not behind."""
    (plain, s4_plain), (pretrained, s4_pretrained) = before, after
    if plain.mean >= s4_plain.mean:
        return None
    terms = ((1.0, s4_plain), (-1.0, plain), (-1.0, s4_pretrained), (1.0, pretrained))
    less = Contrast(terms, scatter=scatter)
    return AtMost(less) if pretrained.mean < plain.mean else less


study = Study(
    name="amos2025_starts",
    claim=(
        "Self-pretraining replaces what a designed start brings (amos2025, figure 2): S4 from random initial values, "
        "and a diagonal linear RNN from either start, are behind S4 from scratch and level with it once pretrained."
    ),
    runs=runs,
    search=efforts.SEARCH,
    views=(
        ReportView("compare", "Accuracy on the test split, with guessing and simple rules"),
        ReportView("gap", "From scratch to self-pretrained"),
        ReportView("training", "Training curves"),
    ),
    probes=lambda run: (Slices(),),
    verdict=verdict,
    deviations=(
        same.POOLED,
        same.RANDOM_STARTS,
        "DLR has 64 states of 1,024, and its own parameters learn at the rate of S4's.",
        "No arm from scratch has the steps of pretraining added; that of S4 is in `amos2025_small`.",
    ),
)
