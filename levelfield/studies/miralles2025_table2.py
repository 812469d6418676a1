"""Is pretraining needed? Miralles-Gonzalez et al. (2025), table 2: a rotary Transformer with enriched training, beside
the same kind self-pretrained, the plain Transformer of the benchmark, and Mega with and without enriched training.

    levelfield run miralles2025_table2 --effort minutes
    levelfield report miralles2025_table2

Three of the five rows quote other papers; here they are trained as those papers do. At `paper` their runs are those of
`amos2025_table1` (the plain Transformer), `amos2025_table2` (the self-pretrained one) and `amos2025_table2_others`
(Mega), so that runs of these are used again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from levelfield.presets import efforts
from levelfield.probes.slices import Slices
from levelfield.report.decisions import Every, Flipped, difference
from levelfield.report.verdicts import Claim, Finding, Key, Table, judged, told
from levelfield.spec import Effort, Published, Row, Run, Study
from levelfield.studies import _deviations as same
from levelfield.studies import _miralles2025_arms as arms

PLAIN, ROTARY, MEGA = "transformer", "transformer_rotary", "mega"
LEVEL = 5.0
"""Points below the self-pretrained Transformer and below Mega that still count as level, as in amos2025_table2."""
LITTLE = 3.0
"""Points that enriched training may add to Mega, of which the paper says that it gets slightly worse."""
ENOUGH, UNMOVED = "enriched training is enough", "Mega gains little"


def runs(effort: Effort) -> tuple[Run, ...]:
    """Task by task: the five rows of the table, at every seed."""
    return arms.runs_of(_arms, effort)


def _arms(name: str, effort: Effort) -> Iterator[arms.Arm]:
    yield arms.quoted_scratch(name, effort)
    yield arms.quoted_pretrained(name, effort)
    yield arms.attention(name, effort, "rotary")
    yield arms.mega(name, effort, anew=False)
    yield arms.mega(name, effort, anew=True)


def verdict(rows: Sequence[Row]) -> str:
    """Task by task, what is shown beyond the noise of seeds and test examples, and what is only seen."""
    return told(findings(rows), "Nothing can be said: no task has all of its cells.")


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Finds two things of every task with all of its cells.

    Enriched training is enough where it lifts the rotary Transformer above the plain one and leaves it at most LEVEL
    points below the self-pretrained one and below Mega. Mega gains little where enriched training adds less than LITTLE
    points to it.
    """
    table, claims = Table.of(rows), dict[str, Claim]()
    for name in table.tasks:
        if all(key in table.cells for key in _keys(name)):
            claims |= {f"{ENOUGH} ({name})": _enough(name, table), f"{UNMOVED} ({name})": _unmoved(name, table)}
    return judged(claims)


def _keys(name: str) -> tuple[Key, ...]:
    """The plain Transformer, the self-pretrained one, the enriched one, Mega and Mega enriched."""
    places = (
        (PLAIN, "scratch"),
        (ROTARY, "spt_masked"),
        (ROTARY, "enriched"),
        (MEGA, "scratch"),
        (MEGA, "enriched"),
    )
    return tuple(Key(name, model, protocol) for model, protocol in places)


def _enough(name: str, table: Table) -> Claim:
    plain, pretrained, own, mega, _ = _keys(name)
    cells, scatter = table.cells, table.scatter(name)
    facts = (
        f"On {name}, the rotary Transformer has {cells[own]} with enriched training and {cells[pretrained]} "
        f"self-pretrained, the plain one {cells[plain]}, Mega {cells[mega]}."
    )
    if unable := [f"{key.model} {key.protocol}" for key in (own, pretrained, mega) if not table.learnt(key)]:
        return Claim(
            None, f"{facts} {' and '.join(unable)} cannot be shown to beat the best simple rule, {table.rule(name)}."
        )
    lift = difference(cells[own], cells[plain], 0.0, scatter)
    level = tuple(difference(cells[own], cells[other], -LEVEL, scatter) for other in (pretrained, mega))
    return Claim(Every((lift, *level)), facts)


def _unmoved(name: str, table: Table) -> Claim:
    *_, before, after = _keys(name)
    gain = difference(table.cells[after], table.cells[before], LITTLE, table.scatter(name))
    facts = f"On {name}, enriched training adds {gain.shown} points to Mega."
    if not (table.learnt(before) and table.learnt(after)):
        return Claim(None, f"{facts} Mega cannot be shown to beat the best simple rule, {table.rule(name)}, in both.")
    return Claim(Flipped(gain), facts)


study = Study(
    name="miralles2025_table2",
    claim=(
        "Enriched training is enough: a rotary Transformer that never pretrains comes level with the self-pretrained "
        "one and with Mega, within 5 points, and Mega itself gains less than 3."
    ),
    runs=runs,
    published=(Published("miralles2025", "2"),),
    views=arms.VIEWS,
    probes=lambda run: (Slices(),),
    verdict=verdict,
    search=efforts.SEARCH,
    tuned_at=("overnight",),
    deviations=(
        "Three rows are quoted by the paper. The plain Transformer has the sizes of Tay et al. (2021) and amos2025's "
        "fine-tuning recipe, not the recipe of Tay et al.; the self-pretrained one is that of amos2025, most of whose "
        "sizes are assumed; Mega has the recipe of its public code. The deviations of amos2025_table2 and "
        "amos2025_table2_others hold for them: they are the same runs.",
        same.QUOTED_INPUTS,
        "Mega's text is cut after 4,096 steps, not 4,000, its biases reach as far, and its pictures are standardised "
        "like everybody's.",
        "Of Mega with enriched training the paper gives no number; here it has its own rate, batch and weight decay, "
        "no warm-up, softmax attention, and the epochs and schedule of the paper's Transformer. The paper lowered the "
        "rate where training did not converge, and does not say where.",
        *arms.DEVIATIONS,
    ),
)
