"""Shows what one can do: `levelfield` alone, and `levelfield --help`, which answer at once as this imports nothing.

print(text())
"""

from __future__ import annotations

USES = (
    (
        "You have a model, an nn.Module of (batch, steps, width)",
        ("levelfield compare mine.py:Mine", "trains it beside baselines at equal budget, and reports"),
        ("levelfield reach mine.py:Mine", "the longest certified range that it learns"),
    ),
    (
        "You doubt a printed number",
        ("levelfield plan amos2025_table2", "runs, cost, what differs between the arms"),
        ("levelfield run amos2025_table2", "trains them; the same command resumes after a stop"),
        ("levelfield report amos2025_table2", "ours beside theirs, with intervals and the ledger"),
    ),
    (
        "You have a language model",
        ("levelfield ruler MODEL", "how far it reads: by task, length, depth and format"),
    ),
    (
        "You doubt a benchmark, or have data of your own",
        ("levelfield audit listops", "how local, positional, trivial and leaky it is"),
        ("levelfield audit reviews.csv --text body --label stars", ""),
    ),
)
"""The four things one can do: who does it, and each command with what it gives."""

COMMANDS = {
    "demo": "answer one question from each of three papers, in minutes",
    "list": "list tasks, mixers, protocols, studies, probes and kernels",
    "plan": "show the runs of a study and what they cost",
    "run": "train, evaluate and probe the runs of a study",
    "status": "show which runs of a study are done, running or failed",
    "report": "write a page, tables and figures from stored rows",
    "compare": "compare a mixer with baselines",
    "reach": "find the longest certified range that a mixer learns",
    "audit": "measure how local, positional, trivial or leaky a dataset is",
    "probe": "take one more measurement on a finished run",
    "ruler": "evaluate a language model on RULER",
    "export": "write a run to a folder, or samples for other evaluators",
    "import": "read exported runs, or answers of other evaluators",
    "data": "prepare the arrays of a task, or check them",
    "check": "check a mixer, task, probe or study of your own, rule by rule",
    "results": "query the numbers with SQL",
    "leaderboard": "write one page of tasks by models from results folders",
    "track": "show runs in TensorBoard, trackio, Weights & Biases or MLflow",
    "cite": "print BibTeX for what a study uses",
    "doctor": "show what is installed, and what is missing for which feature",
    "completion": "print the script by which a shell completes commands",
}
"""Every command, in the order of the list, with a line about it."""


def text() -> str:
    """Returns the four things one can do, then all commands."""
    lines = ["How far does a sequence model really see, and was the comparison fair?", ""]
    for who, *commands in USES:
        lines += [f"{who}:", *(f"  {command:<34}  {gives}".rstrip() for command, gives in commands), ""]
    lines += ["All commands, each with its own --help:"]
    lines += [f"  {name:<11}  {about}" for name, about in COMMANDS.items()]
    return "\n".join(
        [*lines, "", "levelfield demo shows all of it in minutes. levelfield --version prints the version."]
    )
