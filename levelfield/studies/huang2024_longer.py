"""Is it the length of training? What a little training at four times the length gives back of what is lost there.

    levelfield run huang2024_longer --effort overnight
    levelfield report huang2024_longer --effort overnight

`huang2024_small` trains at one length and asks at longer ones. That a model finds less there may have two causes: it
was never trained at such a length, or so long a text is more than so small a model can hold. Here the same runs go on:
after the same training at the same length, with all weights kept, they train at LONGER times the length, and both are
asked the same texts. Whether the fall then moves to multiples of the longer length is asked as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from levelfield.probes.depths import Depths
from levelfield.protocols import extended
from levelfield.report.decisions import ALPHA, Contrast, Seeds
from levelfield.report.verdicts import Claim, Finding, capped, judged
from levelfield.spec import UNTUNED, Duration, Effort, Probe, ReportView, Row, Run, Study
from levelfield.studies import _huang2024_small as needles
from levelfield.studies._huang2024_beyond import CLIFF, LengthScores, brief, falls, farther, together, told_falls
from levelfield.tasks.needle import Needle

LONGER = 4  # times the training length of `huang2024_small`
ARMS = ("rotary", "no-positions", "rwkv6")
"""Two of attention and a recurrence; ALiBi hardly falls."""
SEEDS = 5
SHORT, EXTENDED = "scratch", "extended"  # protocols
SHARE = 2  # as many steps at the longer length, at most, as at the shorter one, divided by this
UNHURRIED = Duration(1_200, "steps")  # at the longer length, before which a phase at `overnight` does not end
LOSS = 5.0  # points lost at the longer length from which there is something to give back
BACK = "training there gives back more than half of what is lost at {} times the length ({})"


def runs(effort: Effort) -> tuple[Run, ...]:
    """Seed by seed, the arms as `huang2024_small` trains them, and as they go on at the longer length."""
    seeds = min(SEEDS, needles.SIZES[effort].seeds)
    every = needles.runs(effort, needles.NEEDLE, needles.recipe, seeds)
    short = [run for run in every if run.model.label in ARMS]
    pairs = [(run, _going_on(run, effort)) for run in short]
    return tuple(pair[more] for seed in range(seeds) for more in (0, 1) for pair in pairs if pair[0].seed == seed)


def _going_on(run: Run, effort: Effort) -> Run:
    length, (phase,) = run.task.max_length, run.protocol.phases
    steps = needles.SIZES[effort].steps // SHARE
    longer = replace(phase.recipe, budget=Duration(steps, "steps"))
    if longer.patience_after:
        longer = replace(longer, patience_after=UNHURRIED)
    protocol = extended(phase.recipe, longer, length, needles.GOAL)
    return replace(run, task=run.task.at_length(LONGER * length), protocol=protocol)


def probes(run: Run) -> Sequence[Probe]:
    """The same multiples of the training length for every arm; those that went on are asked at the shorter one, too."""
    on = run.protocol.name != SHORT
    at = replace(run, task=run.task.at_length(run.task.max_length // LONGER)) if on else run
    short = next(probe for probe in needles.probes(at) if isinstance(probe, Depths))
    if LONGER not in short.factors:
        short = replace(short, factors=(*short.factors, LONGER))
    return (replace(short, factors=(1 / LONGER, *short.factors)) if on else short,)


def length_scores(rows: Sequence[Row], guessing: needles.Guess = Needle.keyless) -> tuple[LengthScores, LengthScores]:
    """Scores of the arms as `huang2024_small` trains them, and of those that went on at the longer length."""
    short = needles.length_scores(rows, guessing)
    return short, replace(short, trained=LONGER * short.trained, protocol=EXTENDED)


def verdict(rows: Sequence[Row]) -> str:
    """Says for which models training at the longer length gives back what is lost there, and which of them fall
    beyond it."""
    short, long = length_scores(rows)
    if not short.learnt:
        return short.unlearnt
    lines = [capped(rows), brief(given_back(rows))]
    if long.learnt:
        lines += [told_falls(long, fallen(rows)), farther(long)]
    return "\n".join(filter(None, lines))


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Two families of questions: what training at the longer length gives back, and who falls beyond that length."""
    return given_back(rows) + fallen(rows)


def fallen(rows: Sequence[Row]) -> list[Finding]:
    """Finds for each model trained at the longer length whether, in some haystack, it loses more than half beyond it,
    by the rule of `huang2024_small`."""
    return needles.answered(lambda guessing: judged(falls(length_scores(rows, guessing)[1])))


def given_back(rows: Sequence[Row]) -> list[Finding]:
    """Finds whether a model that is trained at the longer length has there more than half of what the other one loses
    from its own length to that one; asked of those that are shown to lose more than LOSS points."""
    return needles.answered(lambda guessing: _given_back(*length_scores(rows, guessing)))


def _given_back(short: LengthScores, long: LengthScores) -> list[Finding]:
    read = {model: cells for model in short.models if (cells := _Read.of(model, short, long))}
    able = {model: cells for model, cells in read.items() if short.able(model)}
    lost = together({model: cells.lost(short) for model, cells in able.items()})
    back = together({model: cells.back(short) for model, cells in able.items() if lost[model].decide(ALPHA) > 0})
    return judged({BACK.format(LONGER, model): cells.claim(back.get(model)) for model, cells in read.items()})


@dataclass(frozen=True)
class _Read:
    """Scores of an architecture by haystack, and of all: at its length of training, at the longer one, and there when
    it is trained there. Each seed of one is compared with the same of the other."""

    model: str
    lengths: tuple[int, int]
    near: Mapping[str, Seeds]
    far: Mapping[str, Seeds]
    there: Mapping[str, Seeds]

    @classmethod
    def of(cls, model: str, short: LengthScores, long: LengthScores) -> _Read | None:
        """None where one of the scores is missing."""
        lengths, ends = (short.trained, long.trained), {*short.haystacks, ""}
        asked = [(short, short.trained), (short, long.trained), (long, long.trained)]
        cells = [{end: cell for end in ends if (cell := of.cell(model, length, end))} for of, length in asked]
        return cls(model, lengths, *cells) if all(each.keys() == ends for each in cells) else None

    def lost(self, asked: LengthScores) -> Contrast:
        """How many points more than LOSS, corrected for guessing, in the mean over haystacks."""
        near, far = self.lengths
        lost = asked.corrected(self._mean(1.0, near, self.near) + self._mean(-1.0, far, self.far))
        return replace(lost, against=lost.against + LOSS)

    def back(self, asked: LengthScores) -> Contrast:
        """How far the score there of who is trained there is above the middle of the two others, in the same way."""
        near, far = self.lengths
        middle = self._mean(-CLIFF, near, self.near) + self._mean(CLIFF - 1, far, self.far)
        return asked.corrected(self._mean(1.0, far, self.there) + middle)

    def claim(self, back: Contrast | None) -> Claim:
        """Tells the scores among all haystacks. back: None where nothing is lost that could be given back."""
        near, far = self.lengths
        facts = (
            f"{self.model}: {self.near['']} at {near} steps, {self.far['']} at {far}; trained there as well, "
            f"{self.there['']}."
        )
        return Claim(back, facts if back else f"{facts} It is not shown to lose more than {LOSS:.0f} points there.")

    @staticmethod
    def _mean(weight: float, length: int, cells: Mapping[str, Seeds]) -> list[tuple[float, int, str, Seeds]]:
        ends = [end for end in cells if end] or [""]
        return [(weight / len(ends), length, end, cells[end]) for end in ends]


study = Study(
    name="huang2024_longer",
    claim="Models fail beyond the length that they were trained at, and not because a text is long (huang2024, section "
    "5): some training at four times the length gives back more than half of what is lost there, and scores drop "
    "beyond it.",
    runs=runs,
    views=(
        ReportView("curve", "By length of the text", axis="length"),
        ReportView("heat", "By haystack", axis="format"),
        ReportView("training", "Learning curves"),
    ),
    probes=probes,
    verdict=verdict,
    deviations=(
        needles.MADE_UP,
        UNTUNED,
        "At `overnight` each arm has the rate that was best for it at the shorter length.",
        "The arms that go on train for longer than the others, which had stopped to improve at their own length.",
        needles.EQUAL,
    ),
)
