"""Lists the sets of questions beside RULER's thirteen, one file each; docs/beyond-ruler.md has their cards."""

from __future__ import annotations

from levelfield.ruler.beyond.associations import Association
from levelfield.ruler.beyond.requests import Requests
from levelfield.ruler.beyond.stories import KINDS, Stories
from levelfield.ruler.beyond.tallies import Tally
from levelfield.ruler.beyond.walks import Walk
from levelfield.ruler.question_set import QuestionSet

BEYOND: tuple[QuestionSet, ...] = (
    Walk("parents"),
    Walk("bfs"),
    *(Stories(kind) for kind in KINDS),
    Association(1),
    Association(2),
    Tally("count"),
    Tally("user"),
    Tally("most"),
    Tally("count", labelled=False),
    Requests(2),
    Requests(4),
    Requests(8),
)
"""The tasks of `--tasks beyond`, with the same store, baselines and report as RULER's."""
