"""Says what to cite for a study: levelfield, the papers that it answers to, those of its mixers, and sources of data.

levelfield cite amos2025_table2 > references.bib
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from levelfield import published
from levelfield._version import __version__
from levelfield.engine.find import Source, choose
from levelfield.longcontext.survey import Survey
from levelfield.spec import EFFORTS, Run, Study, UserError

OWN = f"""@software{{levelfield,
  title = {{{{levelfield: a level playing field for long-sequence models}}}},
  author = {{{{The levelfield contributors}}}},
  version = {{{__version__}}},
}}"""


def entries(name: str) -> Iterator[str]:
    """Yields BibTeX entries, and comments on data. Raises UserError for an unknown study."""
    study = Source.of(name).find()
    runs = [] if isinstance(study, Survey) else _runs(study)
    keys = [answer.paper for answer in study.published]
    keys += [mixer.paper for run in runs for mixer in run.model.mixers if mixer.paper]
    yield OWN
    known = published.library()
    for key in dict.fromkeys(keys):
        yield known[key].bibtex if key in known else f"% {key}: a mixer of your own or of a plug-in names this paper"
    for task in {run.task.name: run.task for run in runs}.values():
        yield f"% data of {task.name}: {' '.join(task.source.split())}"


def _runs(study: Study) -> list[Run]:
    """Returns the runs of the largest effort that the study has."""
    for effort in reversed(EFFORTS):
        with suppress(UserError):
            return choose(study, effort)
    raise UserError(f"{study.name} has no runs at any effort.")
