"""Writes samples for other evaluators: as lines of JSON, and as tasks of lm-evaluation-harness or of Inspect.

    export(Evaluation(count=100), tokenizer, "lm-eval", Path("tasks"))
    # lm_eval --model hf --model_args pretrained=MODEL --include_path tasks --tasks levelfield_ruler --log_samples ...

A line has the prompt, its references and all that `levelfield import` needs to make the report of the answers. The
tasks score with levelfield's own two scores, so the package must be installed where they run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from levelfield.files import atomic, write_rows
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import LeftOut, settings_of
from levelfield.ruler import RulerTask, Sample
from levelfield.spec import UserError
from levelfield.tokenizer import Tokenizer

Format = Literal["jsonl", "lm-eval", "inspect"]
GROUP = "levelfield_ruler"
SCORES = "levelfield_scores"
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
  - metric: accuracy
    aggregation: mean
    higher_is_better: true
  - metric: strict_accuracy
    aggregation: mean
    higher_is_better: true
metadata:
  version: {version}
"""

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


def export(evaluation: Evaluation, tokenizer: Tokenizer, form: Format, to: Path) -> tuple[list[Path], list[LeftOut]]:
    """Writes the samples of an evaluation, and for lm-eval and Inspect their tasks.

    Returns the files, and the samples that do not fit. Raises UserError where no sample fits.
    """
    files, tasks, left, code = list[Path](), list[str](), list[LeftOut](), [INSPECT.format(group=GROUP)]
    to.mkdir(parents=True, exist_ok=True)
    for task, length, samples in evaluation.groups(tokenizer, left.append):
        if not samples:
            continue
        path = to / f"{task.name}-{length}.jsonl"
        write_rows(path, [line(sample, task) for sample in samples])
        files.append(path)
        if form == "inspect":
            code.append(_inspect_task(path, task, samples[0]))
        if form == "lm-eval":
            tasks.append(f"levelfield_{task.name}_{length}")
            files.append(_written(to / f"{tasks[-1]}.yaml", _task(tasks[-1], path, task, samples[0])))
    if not files:
        raise UserError(f"No sample fits. {left[0].why}")
    if form == "lm-eval":
        group = f"group: {GROUP}\ntask:\n" + "".join(f"  - {name}\n" for name in tasks)
        files += [_written(to / f"{GROUP}.yaml", group), _written(to / f"{SCORES}.py", CODE)]
    if form == "inspect":
        files.append(_written(to / f"{GROUP}.py", "".join(code)))
    return files, left


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
    """Scores an answer to an exported line, in shares from 0 to 1."""
    from levelfield.longcontext.predictions import task_of
    from levelfield.ruler import score

    found = score(task_of(json.loads(doc["settings"])), answer, doc["outputs"])
    return {"accuracy": found.match, "strict_accuracy": found.strict}


def _task(name: str, path: Path, task: RulerTask, sample: Sample) -> str:
    return TASK.format(
        name=name,
        file=json.dumps(str(path.resolve())),
        scores=SCORES,
        tokens=sample.answer_tokens,
        version=task.version(sample.flavour),
    )


def _inspect_task(path: Path, task: RulerTask, sample: Sample) -> str:
    name = re.sub(r"\W", "_", f"levelfield_{task.name}_{sample.length}")
    return INSPECT_TASK.format(name=name, file=json.dumps(path.name), tokens=sample.answer_tokens)


def _written(path: Path, text: str) -> Path:
    with atomic(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path
