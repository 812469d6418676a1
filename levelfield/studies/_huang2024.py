"""Holds what the studies of huang2024's tables share: its models, its way of asking, and its numbers by location."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean

from levelfield import published
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.survey import Checkpoint
from levelfield.report.decisions import Seeds
from levelfield.report.printed_tables import CellKey, cell_key
from levelfield.ruler import RULER
from levelfield.spec import Effort, Row
from levelfield.spec.study import MeasuredCell

PAPER = "huang2024"
NEOX = "EleutherAI/gpt-neox-20b"
LLAMA = "sheared_llama-chat"
MAMBA2, HYBRID, ATTENTION = "mamba2 x 64", "mamba2 x 58, attention x 6", "attention x 32"
GRIFFIN, RWKV6 = "rglru x 18, attention x 8", "rwkv6 x 32, rwkv6_channel x 32"
CHECKPOINTS = (
    Checkpoint(
        "mamba2_2.7b", "state-spaces/mamba2-2.7b", 2048, tokenizer=NEOX, layers=MAMBA2, parameters=2_702_599_680
    ),
    Checkpoint(
        "mamba2attn_2.7b",
        "state-spaces/mamba2attn-2.7b",
        2048,
        "base",
        NEOX,
        bug=True,
        layers=HYBRID,
        parameters=2_697_590_880,
    ),
    Checkpoint(
        "transformerpp_2.7b",
        "state-spaces/transformerpp-2.7b",
        2048,
        "base",
        NEOX,
        layers=ATTENTION,
        parameters=2_666_457_600,
    ),
    Checkpoint("recurrentgemma_2b", "google/recurrentgemma-2b", 2048, layers=GRIFFIN, parameters=2_682_862_080),
    Checkpoint(
        "sheared_llama_2.7b",
        "princeton-nlp/Sheared-LLaMA-2.7B",
        4096,
        LLAMA,
        layers=ATTENTION,
        parameters=2_701_560_320,
    ),
    Checkpoint("rwkv6_3b", "RWKV/rwkv-6-world-3b-v2.1", 4096, "RWKV", layers=RWKV6, parameters=3_099_857_920),
    Checkpoint("recurrentgemma_2b_it", "google/recurrentgemma-2b-it", 2048, layers=GRIFFIN, parameters=2_682_862_080),
    Checkpoint(
        "sheared_llama_2.7b_sharegpt",
        "princeton-nlp/Sheared-LLaMA-2.7B-ShareGPT",
        4096,
        LLAMA,
        layers=ATTENTION,
        parameters=2_701_560_320,
    ),
)
"""Table 5. Contexts are those underlined in table 1: RecurrentGemma's is its window, not the 8,192 of its training."""

SAMPLES = 250
COUNTS: dict[Effort, int] = {"smoke": 1, "minutes": 20, "overnight": 50, "hours": 100, "paper": SAMPLES}
LENGTHS = (1024, 2048, 4096, 8192, 16384)
AT: dict[Effort, tuple[int, ...]] = {
    "smoke": (3072,),
    "minutes": LENGTHS[:2],
    "overnight": LENGTHS[:3],
    "hours": LENGTHS[:3],
    "paper": LENGTHS,
}
TASKS = {str(number): task.name for number, task in enumerate(RULER, 6)}
"""Table -> task: tables 6 to 18 are RULER's tasks in their order."""

DEVIATIONS = (
    "The paper names neither template, samples per cell nor decoding; they are those of its author's fork of RULER "
    "(jhuang265/RULER at d573689): 250 samples, greedy decoding assumed.",
    "Samples come from the distribution of that fork's generator, not from the same random stream.",
    "The haystack that ships is of Emerson; the paper's is of Paul Graham: `--essays PaulGrahamEssays.json`.",
    "Mamba2Attn's printed numbers very likely carry a mistake of its decoder; `--reference-bug` runs it so.",
    "The fork ran a folder named rwkv-6-world-3b, where table 5 names rwkv-6-world-3b-v2.1.",
)


@cache
def printed() -> Mapping[CellKey, Row]:
    """Printed rows by table, model, task and `at`."""
    return {cell_key(row): row for row in published.rows(PAPER)}


def value(table: str, model: str, task: str, at: str) -> float | None:
    return printed().get((table, model, task, at), Row()).get("value")


def mean(rows: Sequence[Row], table: str, task: str, at: str) -> Row:
    """Returns the mean of rows with equal weights, at another location; its error where all have one."""
    row = Row(table=table, task=task, at=at, metric="accuracy", unit="percent", model=rows[0].get("model", ""))
    row |= Row(value=fmean(r.get("value", math.nan) for r in rows), n=sum(r.get("n", 0) for r in rows))
    if all("stderr" in r for r in rows):
        row["stderr"] = math.sqrt(sum(r.get("stderr", 0.0) ** 2 for r in rows)) / len(rows)
    return row


def ruler(checkpoint: Checkpoint, effort: Effort) -> tuple[Evaluation, ...]:
    """All thirteen tasks, behind tables 1 and 6 to 18."""
    return (Evaluation(lengths=AT[effort], count=COUNTS[effort], flavour="paper", template=checkpoint.template),)


def cells(rows: Sequence[Row]) -> dict[tuple[str, int], Row]:
    """Measured scores of whole lengths, by task and length."""
    found = {}
    for row in rows:
        key, _, length = row.get("at", "").partition("=")
        if row.get("metric") == "accuracy" and key == "length" and length.isdigit() and "value" in row:
            found[row.get("task", ""), int(length)] = row
    return found


def task_answers(checkpoint: Checkpoint, rows: Sequence[Row]) -> list[MeasuredCell]:
    """Returns the cells of tables 6 to 18, with the mean of the printed lengths where all are there."""
    found, made = cells(rows), []
    for table, task in TASKS.items():
        mine = {length: row for (name, length), row in found.items() if name == task}
        placed = [(f"length={length}", [mine[length]]) for length in sorted(mine)]
        if mine.keys() >= set(LENGTHS):
            placed.append(("length=average", [mine[length] for length in LENGTHS]))
        for at, parts in placed:
            beside = value(table, checkpoint.printed, task, at)
            made.append(MeasuredCell(mean(parts, table, task, at), checkpoint.printed, "ours", beside))
    return made


def task_marks(row: Row) -> str:
    """Signs of a cell of tables 6 to 18; LEGEND says what they mean."""
    task, at = row.get("task", ""), row.get("at", "")
    signs = "f" if at != "length=average" and fewer(row) else ""
    short = at in ("length=1024", "length=2048")
    return signs + {"cwe": "c", "qa_2": "q"}.get(task, "") * short


LEGEND = {
    "f": "No multiple of one answer in 250 samples: fewer samples (time-outs, inferred).",
    "c": "Under 4,096 tokens the common words are listed 6 times and the others once, instead of 30 times and 3 times: "
    "another task than at the right.",
    "q": "Where ten documents do not fit, some are left out, perhaps those that are needed.",
}
ASKED = {"niah_multivalue": 4, "niah_multiquery": 4, "vt": 5, "cwe": 10, "fwe": 3}
ROUNDING = 0.005 + 1e-6  # of two printed decimals


def fewer(row: Row) -> bool:
    """Whether so many answers found of those to 250 samples cannot be what is printed."""
    each = 100 / (SAMPLES * ASKED.get(row.get("task", ""), 1))
    score = row.get("value", 0.0)
    return abs(score - each * round(score / each)) > ROUNDING


def asked(answers: Sequence[MeasuredCell]) -> dict[str, dict[tuple[str, str, str], Seeds]]:
    """Scores by model, and in it by table, task and `at`. A checkpoint has no other seeds: only samples vary."""
    found: dict[str, dict[tuple[str, str, str], Seeds]] = {}
    for row in (answer.row for answer in answers if "value" in answer.row):
        place_ = row.get("table", ""), row.get("task", ""), row.get("at", "")
        score = Seeds((row.get("value", 0.0),), row.get("n") or samples(row), trained=False)
        found.setdefault(row.get("model", ""), {})[place_] = score
    return found


def samples(row: Row) -> int:
    """Returns the samples behind a printed cell: 250 of each task in the mean of table 1; of a mean in tables 2 and 3
    at least as many."""
    return SAMPLES * (len(TASKS) if row.get("table") == "1" else 1)


def context(model: str, answers: Sequence[MeasuredCell]) -> int:
    """The training length of whoever answered, by the printed model that it is; 0 where it is not known."""
    beside = {answer.row.get("model", ""): answer.printed_model for answer in answers}
    return next((c.context for c in CHECKPOINTS if c.printed and c.printed == beside.get(model, "")), 0)
