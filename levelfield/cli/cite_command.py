"""Says what to cite for a study: levelfield, the papers that it answers to, those of its mixers, and sources of data.

levelfield cite amos2025_table2 > references.bib
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from levelfield import published
from levelfield._version import __version__
from levelfield.data.croissant import home
from levelfield.engine.find import Source, choose
from levelfield.longcontext.survey import Survey
from levelfield.spec import EFFORTS, Run, Study, Task, UserError

YEAR = 2026  # of this version
AUTHORS = "{The levelfield contributors}"
TITLE = "{levelfield: a level playing field for long-sequence models}"
ADDRESS = re.compile(r"https?://[^\s,;()]+[^\s,;().]|(?<=arXiv[: ])\d{4}\.\d{4,5}|github\.com/[\w./-]*\w")
SPECIAL = re.compile(r"[&%$#_{}]")  # letters that TeX takes for commands


def entries(name: str) -> Iterator[str]:
    """Yields BibTeX entries: of levelfield, papers and data. Raises UserError for an unknown study."""
    study = Source.of(name).find()
    runs = [] if isinstance(study, Survey) else _runs(study)
    keys = [answer.paper for answer in study.published]
    keys += [mixer.paper for run in runs for mixer in run.model.mixers if mixer.paper]
    own = {"title": TITLE, "author": AUTHORS, "version": __version__, "license": "Apache-2.0"}
    yield _entry("software", "levelfield", {**own, "year": str(YEAR), "url": home()})
    known = published.library()
    for key in dict.fromkeys(keys):
        yield known[key].bibtex if key in known else f"% {key}: a mixer of your own or of a plug-in names this paper"
    for task in {run.task.name: run.task for run in runs}.values():
        yield _data(task)


def _data(task: Task) -> str:
    """Returns the entry of a task's data: where they come from in words, and the first address or paper of those."""
    source = " ".join(task.source.split())
    found = ADDRESS.search(source)
    where = found[0] if found else ""
    url = where if where.startswith("http") else f"https://arxiv.org/abs/{where}" if where[:1].isdigit() else where
    url = f"https://{url}" if url.startswith("github") else url
    title = f"{{Data of the task {_plain(task.name)}}}"
    return _entry("misc", f"data_{task.name}", {"title": title, "note": _plain(source), "url": url})


def _entry(kind: str, key: str, given: Mapping[str, str]) -> str:
    """Returns a BibTeX entry with the fields that are not empty."""
    return "\n".join([f"@{kind}{{{key},", *(f"  {name} = {{{text}}}," for name, text in given.items() if text), "}"])


def _plain(text: str) -> str:
    return SPECIAL.sub(lambda letter: f"\\{letter[0]}", text)


def _runs(study: Study) -> list[Run]:
    """Returns the runs of the largest effort that the study has."""
    for effort in reversed(EFFORTS):
        with suppress(UserError):
            return choose(study, effort)
    raise UserError(f"{study.name} has no runs at any effort.")
