"""Counts the models of every shipped study, so that a plan does not have to: writes levelfield/engine/counts.json.

    python docs/scripts/counts.py            # what is missing, or was counted with other code; a new file takes minutes
    python docs/scripts/counts.py --check    # only names what is missing: exit 1 if something is

Without data, at full length: so a plan counts on a machine where nothing is prepared. Until this is run again after a
change of code, plans count the models that it concerns, and take longer. It saves after every study, so it can be
stopped and started again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from levelfield.engine import find, plan
from levelfield.engine.counts import FILE, Counted, Counts, Question
from levelfield.longcontext.survey import Survey
from levelfield.objectives import Trainable, default_objective
from levelfield.spec import Effort, Model, Task

EFFORTS: tuple[Effort, ...] = ("paper", "hours", "overnight", "minutes")  # smoke takes seconds as it is

Case = tuple[Task, Model, Trainable]


def cases(name: str, effort: Effort) -> Iterator[Case]:
    """Yields what a plan of a study counts; nothing for a survey, which trains nothing."""
    study = find.Source(name).find()
    for run in () if isinstance(study, Survey) else find.choose(study, effort):
        for objective in [phase.objective for phase in run.protocol.phases] or [default_objective(run.task)]:
            assert isinstance(objective, Trainable)
            yield run.task, run.model, objective


def asked(case: Case) -> Question:
    task, model, objective = case
    return Question.of(task, model, objective, plan.example(task).lengths, plan.COUNTED)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="count nothing")
    check, known, missing = parser.parse_args().check, Counts.read(), 0
    found: dict[Question, Counted] = {}
    wanted = {place: {asked(c): c for c in cases(*place)} for place in _places()}
    for questions in wanted.values():
        found |= {question: counted for question in questions if (counted := known.find(question)) is not None}
    for (name, effort), questions in wanted.items():
        lacking = {question: case for question, case in questions.items() if question not in found}
        missing += len(lacking)
        print(f"{name} at {effort}: {len(lacking)} of {len(questions)} to count", flush=True)
        if not check and lacking:
            found |= {question: _counted(case) for question, case in lacking.items()}
            known.write(found)
    if not check:
        known.write(found)
        print(f"Wrote {len(found)} counts to {FILE}")
    return 1 if check and missing else 0


def _places() -> Iterator[tuple[str, Effort]]:
    return ((name, effort) for effort in EFFORTS for name in find.listing("studies"))


def _counted(case: Case) -> Counted:
    return plan.count(*case, plan.example(case[0]).lengths)


if __name__ == "__main__":
    sys.exit(main())
