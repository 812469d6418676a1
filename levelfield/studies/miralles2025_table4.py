"""What does the Transformer owe to its positions, and what to enriched training? Miralles-Gonzalez et al. (2025), table
4: learned, sinusoidal and rotary positions with enriched training, and rotary ones from scratch.

    levelfield run miralles2025_table4 --effort minutes
    levelfield report miralles2025_table4

Learned and sinusoidal positions from scratch, which the table has not, are arms too: they tell whether the order of
the positions is the training's doing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from levelfield.presets import efforts
from levelfield.probes.slices import Slices
from levelfield.report.decisions import AtMost, Every, Question, difference
from levelfield.report.verdicts import Claim, Finding, Key, Table, judged, told
from levelfield.spec import Effort, Published, Row, Run, Study
from levelfield.studies import _miralles2025_arms as arms

POSITIONS: tuple[arms.Positions, ...] = ("learned", "sinusoidal", "rotary")  # from the worst to the best, as printed
MASSIVE = 3.0
"""Points that scratch has to lose against enriched training, of which the paper speaks as a massive drop."""
ORDER, DROP = "positions decide", "enriched training decides"


def runs(effort: Effort) -> tuple[Run, ...]:
    """Task by task: every kind of positions, with enriched training and from scratch, at every seed."""
    return arms.runs_of(_arms, effort)


def _arms(name: str, effort: Effort) -> Iterator[arms.Arm]:
    for anew in (True, False):
        for positions in POSITIONS:
            yield arms.attention(name, effort, positions, anew=anew)


def verdict(rows: Sequence[Row]) -> str:
    """Task by task, what is shown beyond the noise of seeds and test examples, and what is only seen."""
    return told(findings(rows), "Nothing can be said: no task has all of its printed cells.")


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Finds, of every task with its printed cells, whether rotary positions are above sinusoidal and these above
    learned ones, and whether enriched training adds more than MASSIVE points to rotary positions."""
    table, claims = Table.of(rows), dict[str, Claim]()
    for name in table.tasks:
        keys = [_key(name, positions) for positions in POSITIONS]
        if all(key in table.cells for key in (*keys, _key(name, "rotary", "scratch"))):
            claims |= {f"{ORDER} ({name})": _order(name, table), f"{DROP} ({name})": _drop(name, table)}
    return judged(claims)


def _key(name: str, positions: arms.Positions, protocol: str = "enriched") -> Key:
    return Key(name, f"transformer_{positions}", protocol)


def _order(name: str, table: Table) -> Claim:
    learned, sinusoidal, rotary = (_key(name, positions) for positions in POSITIONS)
    cells, scatter = table.cells, table.scatter(name)
    facts = f"On {name}: rotary {cells[rotary]}, sinusoidal {cells[sinusoidal]}, learned {cells[learned]}."
    if not table.learnt(rotary):
        return Claim(
            None, f"{facts} Rotary positions cannot be shown to beat the best simple rule, {table.rule(name)}."
        )
    second: Question = difference(cells[sinusoidal], cells[learned], 0.0, scatter)
    if not table.learnt(sinusoidal):
        second = AtMost(second)
    return Claim(Every((difference(cells[rotary], cells[sinusoidal], 0.0, scatter), second)), facts)


def _drop(name: str, table: Table) -> Claim:
    after, before = (_key(name, "rotary", protocol) for protocol in ("enriched", "scratch"))
    gain = difference(table.cells[after], table.cells[before], MASSIVE, table.scatter(name))
    facts = f"On {name}, enriched training adds {gain.shown} points to rotary positions."
    if not table.learnt(after):
        return Claim(None, f"{facts} It did not make them beat the best simple rule, {table.rule(name)}.")
    return Claim(gain, facts)


study = Study(
    name="miralles2025_table4",
    claim=(
        "Positions and training decide what a Transformer reaches: rotary positions are above sinusoidal and these "
        "above learned ones, and without enriched training rotary ones lose more than 3 points."
    ),
    runs=runs,
    published=(Published("miralles2025", "4"),),
    views=arms.VIEWS,
    probes=lambda run: (Slices(),),
    verdict=verdict,
    search=efforts.SEARCH,
    tuned_at=("overnight",),
    deviations=(
        "Learned and sinusoidal positions from scratch are not printed; no printed number stands beside them.",
        "Learned positions are drawn from N(0, 1), like the symbols they are added to; the paper is silent.",
        "Angles are in float32, where the paper's code turns by positions in half precision.",
        *arms.DEVIATIONS,
    ),
)
