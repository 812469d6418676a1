"""Lists the sets of questions that are read from their official files, which do not ship.

    LongBench()                  Sources(longbench="data.json")
    LongMemEval()                Sources(longmemeval="longmemeval_s_cleaned.json")
    HelmetRecall("json_kv")      Sources(helmet="HELMET/data")

docs/beyond-ruler.md has their cards.
"""

from __future__ import annotations

from levelfield.ruler.official.helmet_passages import FILES, HelmetPassages
from levelfield.ruler.official.helmet_recall import RECALL, HelmetRecall
from levelfield.ruler.official.longbench import LongBench
from levelfield.ruler.official.longmemeval import LongMemEval
from levelfield.ruler.official.whole_questions import OfficialSet as OfficialSet

OFFICIAL: tuple[OfficialSet, ...] = (
    LongBench(),
    LongMemEval(),
    *(HelmetRecall(task) for task in RECALL),
    *(HelmetPassages(task) for task in FILES),
)
"""All tasks of official files, each of which needs its own."""
