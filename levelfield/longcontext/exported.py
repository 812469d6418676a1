"""Writes samples for other evaluators: as lines of JSON, and as tasks of lm-evaluation-harness, lighteval or Inspect.

    export(Evaluation(count=100), tokenizer, "lm-eval", Path("tasks"))
    # lm_eval --model hf --model_args pretrained=MODEL --include_path tasks --tasks levelfield_ruler --log_samples ...

A line has the prompt, its references and all that `levelfield import` needs to make the report of the answers. The
tasks score with levelfield's own two scores, and with those that a set of questions has beside them, so the package
must be installed where they run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from levelfield.files import atomic, write_rows
from levelfield.longcontext.earlier_export import GROUP, SCORES
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import LeftOut, settings_of
from levelfield.ruler import QuestionSet, RulerTask, Sample
from levelfield.spec import UserError
from levelfield.tokenizer import Tokenizer

Format = Literal["jsonl", "lm-eval", "lighteval", "inspect"]
CODE = '''"""Scores answers as levelfield does: RULER's match, and the strict score."""

from levelfield.longcontext.exported import scored


def process(doc, results):
    return scored(doc, results[0])
'''
TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
output_type: generate_until
test_split: test
doc_to_text: "{{{{input}}}}"
doc_to_target: "{{{{outputs}}}}"
target_delimiter: ""
process_results: !function {scores}.process
generation_kwargs:
  do_sample: false
  temperature: 0.0
  max_gen_toks: {tokens}
  until: []
metric_list:
{metrics}metadata:
  version: {version}
"""
METRIC = "  - metric: {}\n    aggregation: mean\n    higher_is_better: true\n"

LIGHTEVAL = '''"""Describes the samples beside this file to lighteval.

    lighteval accelerate model_name=MODEL {group}.txt --custom-tasks {group}.py
"""

from pathlib import Path

from levelfield.longcontext.lighteval_tasks import task_of_file

HERE = Path(__file__).resolve().parent
TASKS_TABLE = [
{tasks}]
'''
LIGHTEVAL_TASK = "    task_of_file(HERE / {file}, {name}, tokens={tokens}, version={version}),\n"

INSPECT = '''"""Asks the samples beside this file: inspect eval {group}.py --model PROVIDER/NAME"""

from pathlib import Path

from inspect_ai import task

from levelfield.longcontext.inspected import task_of_file

HERE = Path(__file__).parent
'''
INSPECT_TASK = """

@task
def {name}():
    return task_of_file(HERE / {file}, {tokens})
"""


class Lines(NamedTuple):
    """A file of exported samples, which are of one task and one length."""

    path: Path
    task: RulerTask
    first: Sample

    @property
    def called(self) -> str:
        """What they are called where a name is of letters, digits and underscores."""
        return re.sub(r"\W", "_", f"{self.task.name}_{self.first.length}")

    @property
    def version(self) -> int:
        return self.task.version(self.first.flavour)


def export(evaluation: Evaluation, tokenizer: Tokenizer, form: Format, to: Path) -> tuple[list[Path], list[LeftOut]]:
    """Writes the samples of an evaluation, and for other evaluators their tasks.

    Returns the files, and the samples that do not fit. Raises UserError where no sample fits.
    """
    written, left = list[Lines](), list[LeftOut]()
    to.mkdir(parents=True, exist_ok=True)
    for task, length, samples in evaluation.groups(tokenizer, left.append):
        if not samples:
            continue
        path = to / _place(form, f"{task.name}-{length}")
        path.parent.mkdir(exist_ok=True)
        write_rows(path, [line(sample, task) for sample in samples])
        written.append(Lines(path, task, samples[0]))
    if not written:
        raise UserError(f"No sample fits. {left[0].why}")
    return [lines.path for lines in written] + FORMS[form](to, written), left


def _place(form: Format, name: str) -> Path:
    """Returns where in the folder lines go. lighteval takes a folder as a set, and the file's name as its split."""
    return Path(name, "test.jsonl") if form == "lighteval" else Path(f"{name}.jsonl")


def line(sample: Sample, task: RulerTask) -> dict[str, Any]:
    """Returns a sample as it is exported: `input` is the whole prompt, `outputs` are the references."""
    return {
        "index": sample.index,
        "task": sample.task,
        "length": sample.length,
        "input": sample.text,
        "outputs": list(sample.references),
        "answer_tokens": sample.answer_tokens,
        "tokens": len(sample.ids),
        "depths": list(sample.depths),
        "key": sample.key,
        "flavour": sample.flavour,
        "template": sample.template,
        "seed": sample.seed,
        "version": task.version(sample.flavour),
        "tokenizer": sample.tokenizer,
        "settings": json.dumps(settings_of(task)),
        "slices": json.dumps(dict(sample.slices)),
    }


def scored(doc: Mapping[str, Any], answer: str) -> dict[str, float]:
    """Scores an answer to an exported line, in shares from 0 to 1; the metrics are the same for all lines of a task."""
    from levelfield.longcontext.predictions import task_of
    from levelfield.ruler import score

    task = task_of(json.loads(doc["settings"]))
    found = score(task, answer, doc["outputs"])
    others = task.other_scores(answer, doc["outputs"]) if isinstance(task, QuestionSet) else {}
    return {"accuracy": found.match, "strict_accuracy": found.strict} | others


def metrics_of_file(path: Path) -> list[str]:
    """Returns the metrics by which the answers to a file of exported lines, all of one task, are scored."""
    with path.open(encoding="utf-8") as lines:
        return list(scored(json.loads(next(lines)), ""))


def _for_lm_eval(to: Path, written: Sequence[Lines]) -> list[Path]:
    """Writes a task for each file, a group of all, and the function that scores."""
    names = [f"levelfield_{lines.task.name}_{lines.first.length}" for lines in written]
    tasks = [_written(to / f"{name}.yaml", _lm_eval_task(name, lines)) for name, lines in zip(names, written)]
    group = f"group: {GROUP}\ntask:\n" + "".join(f"  - {name}\n" for name in names)
    return [*tasks, _written(to / f"{GROUP}.yaml", group), _written(to / f"{SCORES}.py", CODE)]


def _lm_eval_task(name: str, lines: Lines) -> str:
    return TASK.format(
        name=name,
        file=json.dumps(str(lines.path.resolve())),
        scores=SCORES,
        tokens=lines.first.answer_tokens,
        metrics="".join(map(METRIC.format, metrics_of_file(lines.path))),
        version=lines.version,
    )


def _for_lighteval(to: Path, written: Sequence[Lines]) -> list[Path]:
    """Writes one module with the table of all tasks, and a list of their names."""
    names = [f"{GROUP}:{lines.called}" for lines in written]
    tasks = [
        LIGHTEVAL_TASK.format(
            file=json.dumps(lines.path.relative_to(to).as_posix()),
            name=json.dumps(name),
            tokens=lines.first.answer_tokens,
            version=lines.version,
        )
        for name, lines in zip(names, written)
    ]
    code = LIGHTEVAL.format(group=GROUP, tasks="".join(tasks))
    return [_written(to / f"{GROUP}.py", code), _written(to / f"{GROUP}.txt", "\n".join(names) + "\n")]


def _for_inspect(to: Path, written: Sequence[Lines]) -> list[Path]:
    """Writes one module with a function for each task."""
    tasks = [
        INSPECT_TASK.format(
            name=f"levelfield_{lines.called}", file=json.dumps(lines.path.name), tokens=lines.first.answer_tokens
        )
        for lines in written
    ]
    return [_written(to / f"{GROUP}.py", INSPECT.format(group=GROUP) + "".join(tasks))]


def _nothing_else(to: Path, written: Sequence[Lines]) -> list[Path]:
    return []


FORMS: Mapping[Format, Callable[[Path, Sequence[Lines]], list[Path]]] = {
    "jsonl": _nothing_else,
    "lm-eval": _for_lm_eval,
    "lighteval": _for_lighteval,
    "inspect": _for_inspect,
}
"""Writes what an evaluator needs besides the lines, and returns those files."""


def _written(path: Path, text: str) -> Path:
    with atomic(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path
