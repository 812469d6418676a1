"""One needle by place and by format: huang2024, tables 2 to 4.

    levelfield plan huang2024_needles
    levelfield ruler state-spaces/mamba2-2.7b --table huang2024_needles --tokenizer EleutherAI/gpt-neox-20b
    levelfield report huang2024_needles

Tables 2 and 3 print a needle at seven depths, at the training length and at twice that. Their cells are means of three
formats (a number among repeated lines, a number and a UUID among essays), but for five models four of the seven depths
are of the repeated lines alone. So those are compared with ours of the repeated lines alone. Table 4 has the formats of
three models apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from statistics import fmean

from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.survey import Checkpoint, Survey
from levelfield.report.against_printed import pairs
from levelfield.report.decisions import Contrast, Seeds, difference, some
from levelfield.report.printed_tables import cell_key
from levelfield.report.verdicts import Claim, Finding, judged, told
from levelfield.ruler import named
from levelfield.spec import Effort, Published, Row
from levelfield.spec.study import MeasuredCell
from levelfield.studies import _huang2024 as shared

DEPTHS = (0, 20, 40, 50, 60, 80, 100)
APART = (0, 50, 100)  # of table 4
FORMATS = {  # RULER's names and those of table 4
    "niah_single_2": "niah_essay_word_number",
    "niah_single_3": "niah_essay_word_uuid",
    "niah_single_1": "niah_repeat_word_number",
}
REPEAT = "niah_single_1"
PLACES = {"2": ("niah_position_1x", 1), "3": ("niah_position_2x", 2)}  # task, and training lengths
SHORTEST = 1024  # of table 4, whose other lengths are those of tables 2 and 3
WHOLE = ("mamba2_2.7b", "mamba2attn_2.7b", "transformerpp_2.7b")  # in table 4; three formats at every depth
WINDOWED = ("recurrentgemma_2b", "recurrentgemma_2b_it")
Cells = Mapping[tuple[str, int, int], Row]  # by task, length and depth in percent
Scores = Mapping[tuple[str, str, str], Seeds]  # by table, task and `at`
MIDDLE = 5.0  # points by which the middle has to be below the mean of the two ends
FORMAT = 10.0  # points between two formats at one length and depth


def evaluations(checkpoint: Checkpoint, effort: Effort) -> tuple[Evaluation, ...]:
    """Three formats at seven depths and two lengths; of the models in table 4 also at its shortest length."""
    tasks, count = tuple(named(name) for name in FORMATS), shared.COUNTS[effort]
    context = checkpoint.context or 2048
    lengths, depths = ((1024, 2048), APART) if effort == "smoke" else ((context, 2 * context), DEPTHS)

    def evaluation(lengths: tuple[int, ...], depths: tuple[int, ...]) -> Evaluation:
        share = tuple(depth / 100 for depth in depths)
        return Evaluation(tasks, lengths, count, flavour="paper", template=checkpoint.template, depths=share)

    more = (evaluation((SHORTEST,), APART),) if checkpoint.printed in WHOLE and effort != "smoke" else ()
    return (evaluation(lengths, depths), *more)


def answers(checkpoint: Checkpoint, rows: Sequence[Row]) -> list[MeasuredCell]:
    """Returns the cells of all three tables. A model of unknown training length is taken at the shortest length
    asked."""
    cells = _cells(rows)
    context = checkpoint.context or min((length for _, length, _ in cells), default=0)
    made: list[MeasuredCell] = []
    for table, (task, times) in PLACES.items():
        made += _placed(checkpoint.printed, cells, table, task, times * context)
    for (name, length, depth), row in sorted(cells.items()):
        if depth in APART:
            task, at = FORMATS[name], f"length={length};depth={depth}"
            beside = shared.value("4", checkpoint.printed, task, at)
            made.append(MeasuredCell(shared.mean([row], "4", task, at), checkpoint.printed, "ours", beside))
    return made


def _cells(rows: Sequence[Row]) -> Cells:
    found = {}
    for row in rows:
        at = pairs(row.get("at", ""))
        if row.get("metric") == "accuracy" and at.keys() == {"length", "depth"} and row.get("task") in FORMATS:
            found[row.get("task", ""), int(at["length"]), round(100 * float(at["depth"]))] = row
    return found


def _placed(model: str, cells: Cells, table: str, task: str, length: int) -> Iterator[MeasuredCell]:
    """Means of the formats by depth, and the repeated lines alone where that is what is printed."""
    means: list[Row] = []
    for depth in DEPTHS:
        at, parts = f"depth={depth}", [cells[f, length, depth] for f in FORMATS if (f, length, depth) in cells]
        beside, alone = shared.value(table, model, task, at), _alone(model, at)
        if len(parts) == len(FORMATS):
            means.append(shared.mean(parts, table, task, at))
            yield MeasuredCell(means[-1], model, f"ours at {length}", None if alone else beside)
        if alone and (REPEAT, length, depth) in cells:
            row = shared.mean([cells[REPEAT, length, depth]], table, task, at)
            yield MeasuredCell(row, model, f"ours at {length}, repeated lines", beside)
    if len(means) == len(DEPTHS):
        beside = _average(table, model, task) if model in WHOLE else None
        yield MeasuredCell(shared.mean(means, table, task, "depth=average"), model, f"ours at {length}", beside)


def _alone(model: str, at: str) -> bool:
    """Whether the cell is of the repeated lines alone."""
    return bool(model) and model not in WHOLE and at.partition("=")[2] not in ("0", "50", "100", "average")


def _average(table: str, model: str, task: str) -> float:
    return fmean(shared.printed()[table, model, task, f"depth={depth}"].get("value", 0.0) for depth in DEPTHS)


def recomputed() -> Iterator[Row]:
    """Averages from the depths beside them, and of three models the depths of table 4 from it."""
    for checkpoint in shared.CHECKPOINTS:
        model = checkpoint.printed
        for table, (task, times) in PLACES.items():
            row = Row(table=table, model=model, task=task)
            yield row | Row(at="depth=average", value=_average(table, model, task))
            for depth in APART if model in WHOLE else ():
                at = f"length={times * checkpoint.context};depth={depth}"
                parts = [shared.printed()["4", model, name, at] for name in FORMATS.values()]
                yield row | Row(at=f"depth={depth}", value=fmean(part.get("value", 0.0) for part in parts))


def marks(row: Row) -> str:
    table, model, task, at = cell_key(row)
    if table == "4":
        return ""
    signs = "r" if _alone(model, at) else "" if at == "depth=average" else "p"
    if at == "depth=average":
        apart = abs(row.get("value", 0.0) - _average(table, model, task)) > 2 * shared.ROUNDING
        signs = "m" if model not in WHOLE else "a" * apart
    return signs + "w" * (model in WINDOWED)


def findings(answers: Sequence[MeasuredCell]) -> list[Finding]:
    """Finds for each model whether, at its training length, MIDDLE points fewer needles are found in the middle than at
    the ends, and whether at some length and depth two formats are FORMAT points apart."""
    claims: dict[str, Claim] = {}
    for model, cells in shared.asked(answers).items():
        claims |= {f"{model} (middle)": middle} if (middle := _middle(model, cells)) else {}
        claims |= {f"{model} (format)": apart} if (apart := _apart(model, cells)) else {}
    return judged(claims)


def _middle(model: str, cells: Scores) -> Claim | None:
    """None where table 2 has no such cells. The three depths whose printed cells are of the same formats."""
    first, middle, last = (cells.get(("2", PLACES["2"][0], f"depth={depth}")) for depth in APART)
    if first is None or middle is None or last is None:
        return None
    facts = f"{model} finds {first} at the beginning, {middle} in the middle, {last} at the end."
    return Claim(Contrast(((0.5, first), (0.5, last), (-1.0, middle)), MIDDLE), facts)


def _apart(model: str, cells: Scores) -> Claim | None:
    """None where table 4 has no two formats in one place."""
    places: dict[str, dict[str, Seeds]] = {}
    for (table, task, at), score in cells.items():
        if table == "4":
            places.setdefault(at, {})[task] = score
    found = {
        (at, one, other): difference(scores[one], scores[other], FORMAT)
        for at, scores in places.items()
        for one, other in permutations(scores, 2)
    }
    if not found:
        return None
    (at, one, other), most = max(found.items(), key=lambda item: item[1].value)
    names = " and ".join(name.removeprefix("niah_").replace("_", " ") for name in (one, other))
    facts = f"{model}: {names} are {most.value:.1f} points apart at {at.replace(';', ', ').replace('=', ' ')}."
    return Claim(some([*found.values()]), facts)


survey = Survey(
    name="huang2024_needles",
    claim="How well one needle is found depends on where it is hidden and on the format of what surrounds it.",
    published=tuple(Published("huang2024", table) for table in ("2", "3", "4")),
    deviations=(
        *shared.DEVIATIONS,
        "Here all three formats are asked at every depth, so no cell of ours is a mean of fewer.",
        "Table 4 says that its length is the longest trained at, but has three lengths.",
        "Tables 2 to 4 and tables 6 to 8 of the paper disagree about the same model, length and format; in part the "
        "prompts of the former are fitted more finely and are longer.",
    ),
    checkpoints=shared.CHECKPOINTS,
    evaluations=evaluations,
    answers=answers,
    recomputed=lambda: tuple(recomputed()),
    marks=marks,
    legend={
        "p": "Mean of three formats with equal weights (checked against table 4).",
        "r": "Of the repeated lines alone (inferred: all such cells are multiples of one in 250, and the launch "
        "script of the paper's fork leaves the essays out at these depths).",
        "m": "Averages over depths of three formats and depths of one: a dip beside them is where essays enter.",
        "a": "Not the mean of the depths beside it; perhaps over the eleven depths 0, 10, ..., 100.",
        "w": "2,048 is RecurrentGemma's window, not its training length of 8,192: table 3 shows the window's edge.",
    },
    across="depth",
    verdict=lambda answers: told(findings(answers), more="samples"),
)
