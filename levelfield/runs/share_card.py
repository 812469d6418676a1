"""Writes the card of an exported run: its README.md, in Markdown with the head that model hubs read.

    card(Path("runs") / run_id, "exported", Beside("mit"))

The head is YAML, of which each value here is JSON, too. Scores stand in it as the hub of Hugging Face shows them
(`model-index`, https://github.com/huggingface/hub-docs/blob/main/modelcard.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from levelfield.files import read_json, remedy
from levelfield.runs import store
from levelfield.runs.names import names_in
from levelfield.runs.results import Described
from levelfield.spec import Row, UserError
from levelfield.spec.shapes import fault

CODE = "source"  # folder of the user's own code in an exported one


@dataclass(frozen=True)
class Beside:
    """What an export holds besides the run. licence: as a hub names it, "unknown" where nobody has said it. code: files
    of the user's own by their names below CODE. made_of: a sentence on where the classes of the model come from."""

    licence: str = "unknown"
    code: Mapping[str, bytes] = field(default_factory=dict)
    made_of: str = ""


NOTHING = Beside()


def card(where: Path, folder: str = "FOLDER", beside: Beside = NOTHING) -> str:
    """Returns the page of a run: licence, scores, cost and how to use it. folder: the name of what it is exported to.

    Raises UserError where a file of the run is damaged.
    """
    path, rows = where / store.SPEC, store.run_rows(where / store.ROWS)
    spec, ledger = read_json(path, expected=store.seal(where, store.SPEC)), store.measured(where).ledger
    if wrong := fault(spec, Described):
        raise UserError(f"{path} is damaged ({wrong}): {remedy(where)}.")
    lines = [
        *_head(where.name, spec, rows, beside.licence),
        "",
        f"# {where.name}",
        "",
        f"A run of levelfield {ledger.get('version', '')}: a model, trained and scored on a task by a stated protocol.",
        "",
        *_table(("of", "split", "metric", "value", "n"), list(_scores(rows))),
        "",
        *_table(("what it cost", ""), [(key, _number(ledger[key])) for key in COSTS if ledger.get(key) is not None]),
        "",
        "`spec.json` says what was trained, field by field; its id hashes all of it. `rows.jsonl` has every number,",
        f"{', '.join(f'`{name}` {what}' for name, what in HELD.items() if (where / name).exists())}.",
        "",
        "    levelfield import FOLDER                   # into runs/; says which report shows it",
        "",
    ]
    if (where / store.WEIGHTS).exists():
        named = [each for each in spec["model"].get("mixers", ()) if isinstance(each, dict) and each.get("path")]
        lines += [
            "The trained network, in Python, on the CPU and in eval mode:",
            "",
            "    import levelfield",
            "",
            f"    net = levelfield.load({', '.join([repr(folder), *_asked(named, folder, beside)])})",
            "",
            *([beside.made_of, ""] if beside.made_of else []),
            "With torch alone, `load.py` reads the weights:",
            "",
            "    from load import weights",
            "",
        ]
    return "\n".join([*lines, f"The model: `{json.dumps(spec['model'], sort_keys=True)}`", ""])


def _asked(named: list[dict[str, Any]], folder: str, beside: Beside) -> Iterator[str]:
    """Yields what else `levelfield.load` needs: the place of the user's own class."""
    for each in named[:1]:
        file = Path(each["path"]).name
        place = f"{folder}/{CODE}/{file}" if file in beside.code else each["path"]
        yield repr(f"{place}:{each['name']}")


def _head(name: str, spec: Any, rows: list[Row], licence: str) -> Iterator[str]:
    """Yields the lines that model hubs read. Of scores they take those of the model itself on the test split."""
    task = names_in(name, spec).task
    scores = [row for row in rows if "at" not in row and "value" in row and row.get("split") == "test"]
    own = [row for row in scores if row.get("protocol") != "none"]
    metrics = [{"type": row["metric"], "name": row["metric"], "value": row["value"]} for row in own if "metric" in row]
    yield "---"
    yield "library_name: levelfield"
    yield f"license: {json.dumps(licence)}"
    yield "tags: [levelfield, long-sequences]"
    if metrics:
        about = {"task": {"type": "other", "name": task}, "dataset": {"type": task, "name": task, "split": "test"}}
        yield f"metrics: {json.dumps([*dict.fromkeys(each['type'] for each in metrics)])}"
        yield f"model-index: {json.dumps([{'name': name, 'results': [about | {'metrics': metrics}]}])}"
    yield "---"


HELD = {  # files of a run -> what is in them
    store.LEDGER: "the whole cost",
    store.LOG: "the curve of training",
    store.SCORES: "the score of each test example",
}
COSTS = ("parameters", "steps", "examples", "tokens", "flops", "wall_s", "tuning_trials", "device", "numerics", "torch")


def _scores(rows: list[Row]) -> Iterator[tuple[str, ...]]:
    """Yields the lines of the table: scores of the run, and those of rules that learn no sequence model."""
    for row in rows:
        if "at" not in row and "value" in row:
            of = row.get("model", "") if row.get("protocol") == "none" else "this model"
            numbers = f"{row['value']:.4g}", str(row.get("n", ""))
            yield of.replace("_", " "), row.get("split", ""), row.get("metric", ""), *numbers


def _number(value: object) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]
