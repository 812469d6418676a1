"""Reads answers that other evaluators have stored, so that they get our report without asking again.

    read(Path("samples_niah_single_1_2026-11-22.jsonl"))     # lm-evaluation-harness, with --log_samples
    read(Path("results/4096/pred/vt.jsonl"))                  # NVIDIA's RULER
    read(Path("details_levelfield_ruler:vt_4096|0_2026.parquet"))   # lighteval, of samples that levelfield exported
    read(Path("logs/2026-11-22T21-30-02_vt.eval"))            # Inspect, of samples that levelfield exported; or .json

Answers to samples that levelfield exported are known in full. Of those that RULER or lm-eval generated, task and length
are known from the file, and the depth of a single needle from where its value stands in the prompt, in characters.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from levelfield.files import read_rows
from levelfield.longcontext import inspected, lighteval_tasks
from levelfield.longcontext.predictions import Prediction, settings_of, task_of
from levelfield.ruler import Needle, named
from levelfield.ruler.sample import question_in
from levelfield.spec import UserError

LM_EVAL = re.compile(r"samples_(.+?)_\d{4}-\d\d-\d\dT[\d.:-]+\.jsonl$")
RENAMED = {
    "ruler_vt": "vt",
    "ruler_cwe": "cwe",
    "ruler_fwe": "fwe",
    "ruler_qa_squad": "qa_1",
    "ruler_qa_hotpot": "qa_2",
}
SOURCES = {
    "lm-eval": "read from lm-evaluation-harness's log of samples",
    "ruler": "read from RULER's prediction files",
    "lighteval": "read from lighteval's details",
    "inspect": "read from a log of Inspect",
}
OFFICIAL_SEED = 42


def read(path: Path, length: int | None = None) -> list[Prediction]:
    """Reads one file of answers. length: in tokens, where neither the file nor its folder says it. Raises UserError."""
    if path.suffix in (".eval", ".json"):
        return [_ours(doc, text, "inspect") for doc, text in inspected.answers(path)]
    if path.suffix == ".parquet":
        return [_ours(doc, text, "lighteval") for doc, text in lighteval_tasks.answers(path)]
    records = read_rows(path, "let the evaluator write it again, or copy it again")
    if not records:
        raise UserError(f"{path} has no answers: name a file of predictions or of logged samples.")
    try:
        return [_answer(path, record, length) for record in records]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(
            f"{path} is neither a prediction file of RULER nor a log of samples of lm-eval ({error!r}): name one."
        ) from error


def _answer(path: Path, record: Mapping[str, Any], length: int | None) -> Prediction:
    if "doc" in record:
        doc, text = record["doc"], _first(record["resps"])
        return _ours(doc, text, "lm-eval") if "settings" in doc else _of_lm_eval(path, record, text, length)
    task = RENAMED.get(path.stem, path.stem)
    return _theirs("ruler", task, length or _length_of(path), record, text=record["pred"])


def _first(resps: Any) -> str:
    """Returns the only text of nested lists."""
    while isinstance(resps, list):
        resps = resps[0]
    if not isinstance(resps, str):
        raise ValueError("an answer that is no text")
    return resps


def _ours(doc: Mapping[str, Any], text: str, source: str) -> Prediction:
    """Returns the answer to a sample that levelfield exported. source: what asked it."""
    settings = json.loads(doc["settings"])
    task_of(settings)
    return Prediction(
        key=_key(doc["key"], source),
        task=doc["task"],
        settings=settings,
        length=doc["length"],
        index=doc["index"],
        flavour=doc["flavour"],
        template=f"{doc['template']}-{source}",
        seed=doc["seed"],
        tokens=doc["tokens"],
        made=0,
        depths=tuple(doc["depths"]),
        slices=json.loads(doc["slices"]),
        references=tuple(doc["outputs"]),
        text=text,
        version=doc["version"],
        question=question_in(str(doc.get("input", ""))),
    )


def _of_lm_eval(path: Path, record: Mapping[str, Any], text: str, length: int | None) -> Prediction:
    if not (found := LM_EVAL.search(path.name)):
        raise ValueError("its name does not say the task, as samples_TASK_DATE.jsonl does")
    doc = {"index": record["doc_id"], **record["doc"]}
    return _theirs("lm-eval", RENAMED.get(found[1], found[1]), length or doc["max_length"], doc, text=text)


def _theirs(source: str, name: str, length: int, record: Mapping[str, Any], *, text: str) -> Prediction:
    """Returns the answer to a sample that RULER or lm-eval generated."""
    task, references = named(name), tuple(str(r) for r in record["outputs"])
    prompt = record.get("input", "")
    single = isinstance(task, Needle) and len(references) == 1 and references[0] in prompt
    return Prediction(
        key=_key(prompt, name, length, record["index"], *references, source),
        task=task.name,
        settings=settings_of(task),
        length=length,
        index=int(record["index"]),
        flavour="official",
        template=f"imported-{source}",
        seed=OFFICIAL_SEED,
        tokens=int(record.get("length") or 0),
        made=0,
        depths=(prompt.index(references[0]) / len(prompt),) if single else (),
        slices={},
        references=references,
        text=text,
        version=task.version("official"),
        question=question_in(prompt),
    )


def _length_of(path: Path) -> int:
    """Returns the length that a folder above a prediction file is called by, as in 4096/pred/vt.jsonl."""
    for folder in path.resolve().parents:
        if folder.name.isdigit() and int(folder.name) >= 128:
            return int(folder.name)
    raise ValueError("no folder says the length, as in 4096/pred/vt.jsonl: add --length")


def _key(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:24]


def sentence(found: Sequence[Prediction]) -> dict[str, str]:
    """Says, for every label of these answers, where they come from."""
    labels = {p.template for p in found}
    return {label: said for label in labels for source, said in SOURCES.items() if label.endswith(f"-{source}")}
