"""Reads answers that other evaluators have stored, so that they get our report without asking again.

    read_all(files_in(Path("results")))                       # all that a folder has of what follows
    read(Path("samples_niah_single_1_2026-11-22.jsonl"))     # lm-evaluation-harness, with --log_samples
    read(Path("results/4096/pred/vt.jsonl"))                  # NVIDIA's RULER
    read(Path("details_levelfield_ruler:vt_4096|0_2026.parquet"))   # lighteval, of samples that levelfield exported
    read(Path("logs/2026-11-22T21-30-02_vt.eval"))            # Inspect, of samples that levelfield exported; or .json
    read(Path("tasks/vt-4096.jsonl"))                         # lines that levelfield exported, with answers as "pred"

Answers to samples that levelfield exported are known in full. Of those that RULER or lm-eval generated, task and length
are known from the file, and the depth of a single needle from where its value stands in the prompt, in characters.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from levelfield.files import read_rows
from levelfield.longcontext import inspected, lighteval_tasks
from levelfield.longcontext.import_checks import flaw, references_of
from levelfield.longcontext.predictions import LeftOut, Prediction, settings_of, task_of
from levelfield.ruler import BEYOND, OFFICIAL, RULER, Needle, RulerTask, named
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
    "lm-eval": "lm-evaluation-harness, read from its log of samples",
    "chat-lm-eval": "lm-evaluation-harness in a template of its own, read from its log of samples",
    "ruler": "RULER's own code, read from its prediction files",
    "lighteval": "lighteval, read from its details, which do not say whether it added a chat template",
    "plain-lighteval": "lighteval, as it stands, read from its details",
    "chat-lighteval": "lighteval in a template of its own, read from its details",
    "inspect": "Inspect, as a message of a user, read from its log",
    "jsonl": "another program, which added its answers to exported lines",
}
INSPECT = (".eval", ".json")
NEITHER = "neither a prediction file of RULER nor a log of samples of lm-eval"
WRONG = {".parquet": "no file of lighteval's details"} | dict.fromkeys(INSPECT, "no log of Inspect")
OFFICIAL_SEED = 42
UNKNOWN = -1
"""What RULER writes in place of a prompt's length where its data have none."""
SUFFIXES = (".jsonl", ".parquet", ".gz", *INSPECT)
"""Of files of answers, compressed ones among them, which are told so."""
IN_FOLDERS = ("samples_*.jsonl", "pred/*.jsonl", "details_*.parquet", "*.eval")
EXAMPLES = (
    "RULER (4096/pred/vt.jsonl), lm-eval (samples_TASK_DATE.jsonl), lighteval (details_TASK_DATE.parquet) or Inspect "
    "(.eval)"
)
"""What files of answers in a folder are called, and how a sentence says it."""


def files_in(folder: Path) -> list[Path]:
    """Returns the files of answers in a folder, at any depth, in the order of their paths. Lines that levelfield
    exported are such a file where the first has an answer, or in a folder with nothing else, to say what they lack."""
    files = {path for path in folder.absolute().rglob("*") if path.is_file()}
    named = {path for path in files if any(map(path.match, IN_FOLDERS))}
    lines = {path: first for path in files - named if path.suffix == ".jsonl" and (first := _exported(path))}
    return sorted(named | {path for path, first in lines.items() if "pred" in first} or lines)


def _exported(path: Path) -> Mapping[str, Any]:
    """Returns the first of the lines that levelfield exported; nothing for another file."""
    with suppress(OSError, ValueError, RecursionError), path.open("rb") as file:
        first = json.loads(file.readline())
        if isinstance(first, dict) and {"settings", "key", "outputs"} <= first.keys():
            return first
    return {}


def read_all(
    paths: Sequence[Path], length: int | None = None, on_replaced: Callable[[Prediction], object] = lambda one: None
) -> list[Prediction]:
    """Reads files of answers, as `read` does. Raises UserError where one would take the place of another.

    on_replaced: is told of an answer that another one in its file or its folder replaces, which comes later.
    """
    found: dict[tuple[object, ...], tuple[Prediction, Path]] = {}
    for path in paths:
        for one in read(path, length):
            other, where = found.setdefault(one.place, (one, path))
            what = "answers to two questions" if other.key != one.key else ""
            if where.parent != path.parent and other.text != one.text:
                what = what or "different answers to the same question"  # as of two models in one folder of results
            if what:
                files = f"{path} has" if where == path else f"{where} and {path} have"
                raise UserError(
                    f"{files} {what} as number {one.index} of {one.task} at {one.length}: import them one by one, "
                    "each with a --model name of its own."
                )
            if other.text != one.text:
                on_replaced(other)
            found[one.place] = one, path
    return [one for one, _ in found.values()]


class Failed(NamedTuple):
    """The samples of imported files that have no answer, and why. known: all samples of these files."""

    left: list[LeftOut]
    known: set[tuple[object, ...]]

    def covers(self, found: LeftOut) -> bool:
        """Whether these files say if a sample was answered."""
        return found.place in self.known


def failed(paths: Sequence[Path], answered: Sequence[Prediction]) -> Failed:
    """Returns the samples that failed in logs of Inspect. answered: the answers of all files. Raises UserError."""
    known: set[tuple[object, ...]] = {one.place for one in answered}
    found = [_failed(doc, why) for path in paths if path.suffix in INSPECT for doc, why in inspected.failed(path)]
    left = [one for one in found if one.place not in known]
    return Failed(left, known | {one.place for one in left})


def _failed(doc: Mapping[str, Any], why: str) -> LeftOut:
    return LeftOut.restored({**doc, "template": f"{doc['template']}-inspect", "why": why})


def read(path: Path, length: int | None = None) -> list[Prediction]:
    """Reads one file of answers. length: in tokens, where neither the file nor its folder says it. Raises UserError
    where a record is not whole, so that nothing is stored of which no report can be made."""
    try:
        found = list(_read(path, length))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        said = WRONG.get(path.suffix, NEITHER)
        why = f"a record lacks {error}" if isinstance(error, KeyError) else repr(error)
        raise UserError(f"{path} is {said}, or not a whole one ({why}): name one.") from error
    for number, one in enumerate(found, 1):
        if why := flaw(one):
            raise UserError(f"Answer {number} of {path} {why}: let the evaluator write it again, or leave it out.")
        if length not in (None, one.length):
            raise UserError(
                f"{path} or its folder says that the length is {one.length}, where --length says {length}: leave out "
                "--length, or rename the folder."
            )
    return found


def _read(path: Path, length: int | None) -> Iterator[Prediction]:
    if path.suffix in INSPECT:
        yield from (_ours(doc, text, "inspect") for doc, text in inspected.answers(path))
    elif path.suffix == ".parquet":
        yield from (
            replace(_ours(one.doc, one.text, one.put), counted=one.counted) for one in lighteval_tasks.answers(path)
        )
    elif path.suffix == ".gz":
        raise UserError(f"{path} is compressed: unpack it first, with `gunzip`.")
    else:
        records = read_rows(path, "let the evaluator write it again, or copy it again")
        if not records:
            raise UserError(f"{path} has no answers: name a file of predictions or of logged samples.")
        yield from (_answer(path, number, record, length) for number, record in enumerate(records))


def _answer(path: Path, number: int, record: Mapping[str, Any], length: int | None) -> Prediction:
    """Returns the answer of a record. number: its place in the file, which is the sample's in RULER's files: their own
    `index` is where a needle's value stands, and several samples may have the same."""
    if "doc" in record:
        doc, text = record["doc"], _first(record["resps"])
        source = "chat-lm-eval" if _wrapped(record) else "lm-eval"
        return _ours(doc, text, source) if "settings" in doc else _of_lm_eval(path, record, text, length, source)
    if "settings" in record:
        if "pred" not in record:
            raise UserError(f'{path} has exported lines without an answer: add it to each of them as "pred".')
        return _ours(record, record["pred"], "jsonl")
    text, task = record["pred"], RENAMED.get(path.stem, path.stem)
    if task not in {each.name for each in (*RULER, *BEYOND, *OFFICIAL)}:
        raise UserError(f"{path} is called by no task of RULER: rename it to that of its answers, such as vt.jsonl.")
    return _theirs("ruler", task, _length_of(path, length), {**record, "index": number}, text=text)


def _wrapped(record: Mapping[str, Any]) -> bool:
    """Whether lm-eval put text before a prompt, such as that of a chat template."""
    given = record.get("arguments")
    while given and isinstance(given, list | dict):
        given = next(iter(given.values() if isinstance(given, dict) else given))
    return isinstance(given, str) and not given.startswith(record["doc"].get("input", ""))


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
        references=references_of(doc["outputs"]),
        text=text,
        version=doc["version"],
        question=question_in(str(doc.get("input", ""))),
    )


def _of_lm_eval(path: Path, record: Mapping[str, Any], text: str, length: int | None, source: str) -> Prediction:
    if not (found := LM_EVAL.search(path.name)):
        raise UserError(f"{path} does not say its task: call it as lm-eval did, samples_TASK_DATE.jsonl.")
    doc = {"max_length": length, "index": record["doc_id"], **record["doc"]}
    if doc["max_length"] is None:
        raise UserError(f"{path} does not say how long its prompts are: add --length, such as --length 4096.")
    return _theirs(source, RENAMED.get(found[1], found[1]), doc["max_length"], doc, text=text)


def _theirs(source: str, name: str, length: int, record: Mapping[str, Any], *, text: str) -> Prediction:
    """Returns the answer to a sample that RULER or lm-eval generated."""
    task, references = named(name), references_of(record["outputs"])
    prompt = record.get("input", "")
    places = [prompt.find(value) for value in references] if isinstance(task, Needle) else []
    return Prediction(
        key=_key(prompt, name, length, record["index"], *references, source),
        task=task.name,
        settings=settings_of(task),
        length=length,
        index=int(record["index"]),
        flavour="official",
        template=f"imported-{source}",
        seed=OFFICIAL_SEED,
        tokens=_tokens(int(record.get("length") or 0), task),
        made=0,
        depths=() if -1 in places else tuple(place / len(prompt) for place in places),
        slices={},
        references=references,
        text=text,
        version=task.version("official"),
        question=question_in(prompt),
    )


def _tokens(stored: int, task: RulerTask) -> int:
    """Returns the tokens of a prompt from the length that both generators store, which counts the answer's budget too.
    0 where it is not known."""
    if stored == UNKNOWN:
        return 0
    return max(0, stored - task.answer_tokens) if stored > 0 else stored


def _length_of(path: Path, given: int | None) -> int:
    """Returns the length that a folder above a prediction file is called by, as in 4096/pred/vt.jsonl.

    given: the one to take where neither of the two nearest folders is called so; others may mean something else.
    """
    folders = path.resolve().parents
    for folder in folders[:2] if given else folders:
        if folder.name.isdigit() and int(folder.name) >= 128:
            return int(folder.name)
    if given:
        return given
    raise UserError(
        f"No folder of {path} says how long the prompts are, as in 4096/pred/{path.name}: add --length, such as "
        "--length 4096."
    )


def _key(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:24]


def sentence(found: Sequence[Prediction]) -> dict[str, str]:
    """Says, for every label of these answers, where they come from."""
    labels = {p.template for p in found}
    return {label: said for label in labels for source, said in SOURCES.items() if label.endswith(f"-{source}")}
