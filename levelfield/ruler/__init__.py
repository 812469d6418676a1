"""Generates the samples of RULER's 13 tasks from a seed, and scores answers to them.

    from levelfield.ruler import Bytes, generate, named, score

    for sample in generate(named("niah_single_2"), 4096, Bytes(), count=10):
        prediction = my_model(sample.ids, sample.answer_tokens)
        print(score(sample.task, prediction, sample.references).match)

Source: Hsieh et al. 2024, RULER: What's the Real Context Size of Your Long-Context Language Models? docs/ruler.md says
how its three variants (`FLAVOURS`) differ.
"""

from __future__ import annotations

from levelfield.ruler.beyond import BEYOND as BEYOND
from levelfield.ruler.beyond.associations import Association as Association
from levelfield.ruler.beyond.requests import Requests as Requests
from levelfield.ruler.beyond.stories import Stories as Stories
from levelfield.ruler.beyond.tallies import Tally as Tally
from levelfield.ruler.beyond.walks import Walk as Walk
from levelfield.ruler.generation import PromptOptions as PromptOptions
from levelfield.ruler.generation import generate as generate
from levelfield.ruler.official import OFFICIAL as OFFICIAL
from levelfield.ruler.official import OfficialSet as OfficialSet
from levelfield.ruler.prompt.flavours import FLAVOURS as FLAVOURS
from levelfield.ruler.prompt.templates import TEMPLATES as TEMPLATES
from levelfield.ruler.question_set import QuestionSet as QuestionSet
from levelfield.ruler.question_set import Score as Score
from levelfield.ruler.sample import Sample as Sample
from levelfield.ruler.scores import score as score
from levelfield.ruler.scores import scores_of_references as scores_of_references
from levelfield.ruler.sources import Sources as Sources
from levelfield.ruler.tasks import RULER as RULER
from levelfield.ruler.tasks import CommonWords as CommonWords
from levelfield.ruler.tasks import FrequentWords as FrequentWords
from levelfield.ruler.tasks import Needle as Needle
from levelfield.ruler.tasks import Questions as Questions
from levelfield.ruler.tasks import RulerTask as RulerTask
from levelfield.ruler.tasks import Tracking as Tracking
from levelfield.ruler.tasks import named as named
from levelfield.ruler.tasks import sweep as sweep
from levelfield.ruler.trivial_baselines import baselines as baselines
from levelfield.tokenizer import Bytes as Bytes
from levelfield.tokenizer import RwkvTokenizer as RwkvTokenizer
from levelfield.tokenizer import Tokenizer as Tokenizer
