"""Holds the claims that docs/findings.md answers, and reads what the committed results of their studies say.

    for subject in SUBJECTS:
        found = answer(subject)         # None where no results are committed

What a claim is, and what would change our mind, is written here; every number comes from `results/STUDY-EFFORT/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import by_operator
import findings_brief as brief
import findings_summary as summary
import leads
import leads_length
import never_stopped
import reach_figure
import went_on

from levelfield.engine.find import Source
from levelfield.report import committed
from levelfield.report.verdicts import Finding
from levelfield.runs.results import Results
from levelfield.spec import Effort, Row, Run, Study

ROOT = Path(__file__).resolve().parents[2]
FIGURE, RESULTS = ROOT / "docs" / "figures" / "findings.png", ROOT / "results"
HOUR = 3_600
SEEN, RULE, RECIPE = "seen", "rule", "recipe"  # marks of answers; see the introduction of the page


@dataclass(frozen=True)
class Subject:
    """One paper's claim and the committed results that answer it.

    studies: (study, effort), the first of them that has results is taken. trials: how many recipes its name says were
    tried, 0 where the study itself tunes or nothing is tuned. change: what would change our mind. asks: the question
    that is put to every subject whose name, a single word, does not say. paired: whether a model is compared with
    itself. axis: of a curve that is drawn below the answer, "" for none. rules: rows of what learns nothing that the
    curve has as well. shows: a module with a table and figures in place of the curve. then: the same study at another
    effort, of which `shows.longer` tells. short: the answer, below the claim. brief: a shorter one, for the table at
    the top and the README, where there is one. headline: the claim as a question, where the README answers it. lead:
    what it rests on and leaves open. known: of questions, by patterns of their names, whose answer was known beforehand
    or was open until a rule was changed, why. beside: what else has to be known of an answer, by such a pattern.
    groups: what questions of such a pattern ask together, where a section has a table for each. tuned: the study whose
    trials chose the rates, where it is another.
    """

    title: str
    paper: str
    claim: str
    studies: tuple[tuple[str, Effort, int], ...]
    change: str
    asks: str = ""
    paired: bool = False
    axis: str = ""
    rules: Callable[[Answer], Iterable[Row]] | None = None
    shows: ModuleType | None = None
    then: tuple[tuple[str, Effort, int], ...] = ()
    short: Callable[[Answer], str] = summary.by_name
    brief: Callable[[Answer], str] | None = None
    headline: str = ""
    lead: Callable[[Answer], Iterator[str]] | None = None
    known: tuple[tuple[str, str], ...] = ()
    beside: tuple[tuple[str, str], ...] = ()
    groups: tuple[tuple[str, str], ...] = ()
    tuned: tuple[str, Effort, int] | None = None

    @property
    def figure(self) -> Path:
        return FIGURE.with_name(f"findings-{self.studies[0][0].replace('_', '-')}.png")

    def in_short(self, found: Answer) -> str:
        return (self.brief or self.short)(found)


BEYOND = (
    ("more than half is lost*", "Who loses more than half?"),
    ("* helps *", "Which remedies help?"),
    ("the middle is lost*", "Is least found in the middle of the text?"),
    ("a haystack*", "Is a haystack beyond the training length easier than another at it?"),
    ("a layout*", "Is a layout beyond the training length easier than another at it?"),
)
"""What the families of questions ask that are put beyond the training length."""
ENDED = (
    "Patience ended these arms of S4, except for pretraining, which reached its cap; section 2 has one that takes all "
    "steps."
)
TUNED_ON_NEEDLES: tuple[str, Effort, int] = ("huang2024_small", "minutes", 4)


SUBJECTS = (
    Subject(
        "Never train from scratch",
        "amos2025",
        "Trained from scratch, Transformers look worse than they are. Self-pretraining on the task's own training "
        "inputs lifts them and closes most of their distance to state-space models (SSMs).",
        (("amos2025_small", "overnight", 0),),
        "On reviews, an arm from scratch that catches up, as none does over all steps (next section). Where the answer "
        "is open: a lift at an equal allowance of steps on sequences of 1,024 steps and more, with models of the "
        "printed size (`levelfield run amos2025_table2 --effort paper`).",
        short=summary.never_from_scratch,
        brief=brief.never_from_scratch,
        headline="Does self-pretraining lift Transformers? (Amos et al. 2025)",
        lead=leads.never_from_scratch,
        known=(
            ("S4's lift holds*", SEEN),
            ("the gap narrows at an equal allowance*", SEEN),
        ),
        beside=(
            ("*lifts S4 (text)", ENDED),
            ("S4's lift * (text)", ENDED),
            (
                "the gap narrows at * (text)",
                f"{ENDED} Each did best at the higher of the two rates tried, so S4 may be better.",
            ),
        ),
    ),
    Subject(
        "Where nothing stops training early",
        "amos2025",
        "The lift of self-pretraining is not explained by arms from scratch that stopped too early.",
        (("amos2025_patience", "overnight", 0),),
        "An arm from scratch that reaches the self-pretrained one at some other rate, schedule or dropout.",
        short=never_stopped.short,
        brief=brief.never_stopped,
        lead=never_stopped.lead,
        known=(("*", SEEN),),  # put after both arms of section 1 on reviews had been seen
    ),
    Subject(
        "Where labels are scarce",
        "amos2025",
        "The fewer labels there are, the more self-pretraining on the task's own inputs brings.",
        (("amos2025_labels", "overnight", 0),),
        "On pictures, more seeds with 1 and 10 % of the labels: `levelfield run amos2025_labels --effort overnight "
        "--filter 'image8-*'`.",
        short=summary.scarce_labels,
        brief=brief.scarce_labels,
        lead=lambda found: leads.scarce_labels(found, _of("amos2025_small")),
        known=(("*(in_context_recall)", "control"), ("*with 10 % of the labels (image8)", RULE)),
    ),
    Subject(
        "Where initial values are random",
        "amos2025",
        "Trained from scratch, state-space models need initial values designed for long sequences, and a special "
        "structure; self-pretrained, they hardly need either (figure 2).",
        (("amos2025_starts", "overnight", 0),),
        "Pictures of 1,024 steps, where distant input needs a memory that random values do not give, with all "
        "parameters at random (`levelfield run amos2025_figure2 --effort paper`).",
        short=summary.starts,
        brief=brief.starts,
        lead=leads.starts,
    ),
    Subject(
        "Models that read forward, and other architectures",
        "amos2025",
        "Self-pretraining, by predicting the next step, also lifts causal models, which read forward only. Whether "
        "masked self-pretraining lifts Mega is asked as well; the paper quotes scores of Mega from scratch and never "
        "self-pretrains it.",
        (("amos2025_arms", "overnight", 0),),
        "Arms from scratch with the steps of pretraining added, more seeds, and the printed size (`levelfield run "
        "amos2025_table1 --effort paper`).",
        short=summary.arms,
        brief=brief.arms,
        lead=leads.arms,
    ),
    Subject(
        "Most of it is local",
        "miralles2025",
        "Convolutions that see at most 61 steps per layer come close to the best scores of the Long Range Arena; on "
        "text, 5 steps per layer suffice. So most of what the benchmark measures is local.",
        (("miralles2025_small", "overnight", 0),),
        "A natural task on which kernel 11 stays far below models that see more, all with the same enriched training "
        "(`levelfield run miralles2025_table1 --effort paper`).",
        "kernels up to 11 have 90 % of the gain: ",
        shows=by_operator,
        short=lambda found: summary.local(found, _of("miralles2025_enriched")),
        brief=lambda found: brief.local(found, _of("miralles2025_enriched")),
        headline="Is a short range enough? (Miralles-González et al. 2025)",
        lead=lambda found: leads.local(found, _of("miralles2025_enriched")),
        known=(("reach", "proved"),),
    ),
    Subject(
        "Enriched training and positions",
        "miralles2025",
        "Enriched training (augmented inputs, or denoising as a second loss) brings Transformers level with "
        "state-space models, which barely gain from it; the position encoding decides how far.",
        (("miralles2025_enriched", "overnight", 0),),
        "A lift from augmentation that suits such small pictures, or on pictures of the printed size "
        "(`levelfield run miralles2025_table3 --effort paper`).",
        short=summary.enriched,
        brief=brief.enriched,
        lead=lambda found: leads.enriched(found, _of("amos2025_small")),
        known=(("positions lift attention*", "control"), ("enriched training lifts * (image8)", RECIPE)),
    ),
    Subject(
        "How long is long",
        "huang2024",
        "Beyond the length that a model was trained at, its scores drop steeply, whatever the architecture (section "
        "5, where RWKV is a mild exception).",
        (("huang2024_small", "overnight", 0), TUNED_ON_NEEDLES),
        "More architectures that, as ALiBi does here, keep their recall at several times the training length in every "
        "haystack and over seeds; or the same curves for models with billions of parameters (`levelfield ruler`).",
        paired=True,
        short=summary.beyond,
        brief=lambda found: brief.needles(found, _of("huang2024_longer")),
        groups=BEYOND,
        headline="Does every model fail beyond its training length? (Huang 2024)",
        tuned=TUNED_ON_NEEDLES,
        lead=leads_length.beyond,
        known=(
            ("window helps*", "known"),
            ("sinks helps*", "known"),
            ("more than half is lost at 16 times*", SEEN),
            ("the middle is lost*", SEEN),
            ("a haystack * easier*", SEEN),
        ),
    ),
    Subject(
        "How long is long where one counts",
        "huang2024",
        "Beyond the length that a model was trained at, scores drop steeply; tables 6 to 18 print them for tasks whose "
        "answer is in one place and for tasks that aggregate over the whole text.",
        (("huang2024_counting", "overnight", 0),),
        "Longer training after which an architecture that falls here holds; or the same curves for RULER's common and "
        "frequent words on models with billions of parameters (`levelfield ruler`).",
        paired=True,
        short=summary.counting,
        brief=partial(brief.beyond, layout="layout"),
        groups=BEYOND,
        tuned=TUNED_ON_NEEDLES,
        lead=lambda found: leads_length.counting(found, _of("huang2024_small")),
        known=(
            ("more than half is lost*(mamba2)", SEEN),  # by a pilot, and so the next
            ("more than half is lost*(rotary)", SEEN),
            ("a layout * easier*", RULE),
        ),
    ),
    Subject(
        "Whether it is the length of training",
        "huang2024",
        "Models fail beyond the length that they were trained at because they were never trained there, and not "
        "because so long a text is too much for them. (The paper leaves open why; the claim is ours.)",
        (("huang2024_longer", "overnight", 0),),
        "A model that does not regain what it lost, however long it trains at the longer length; or one that holds "
        "beyond it.",
        paired=True,
        axis="length",
        rules=went_on.guesses,
        short=went_on.short,
        brief=went_on.brief,
        groups=(
            ("training there*", "Does training at the longer length give back what is lost there?"),
            ("more than half is lost*", "Who loses more than half beyond the longer length?"),
        ),
        lead=went_on.lead,
        known=(("*", SEEN),),  # put after the falls of the section before had been seen
        tuned=TUNED_ON_NEEDLES,
    ),
    Subject(
        "What a layer can compute",
        "Grazzi et al. 2024 and others",
        "Beyond the length of training, a linear recurrence cannot follow parity unless some transition has a negative "
        "or complex eigenvalue (Grazzi et al.), which is necessary and may not be sufficient. This and the other "
        "separations asked here are known, so they test the harness.",
        (("state_tracking", "minutes", 0),),
        "An attention model that holds a machine at 16 times the length of training; or an sLSTM that counts at 4 "
        "times it in most seeds, as none does with two layers and a tuned rate (`levelfield run state_tracking "
        "--effort overnight`).",
        paired=True,
        axis="length",
        short=summary.machines,
        brief=brief.machines,
        lead=lambda found: leads.machines(found, _of("state_tracking", "overnight")),
        known=(("*", "known"),),  # all, as docs/studies.md lists with their sources
    ),
    Subject(
        "How far each architecture reaches, where it is proved to be needed",
        "levelfield's own",
        "On a task whose range is proved, a stack of convolutions that sees no more steps than the range scores "
        "exactly 50 %, and models that see everything reach further, as far as training takes them "
        "([proof](reach.md)).",
        (("reach", "minutes", 0),),
        "Longer training at longer ranges (`levelfield run reach --effort overnight`), by which those that fall short "
        "here may reach further, and those that reach all may not.",
        paired=True,
        shows=reach_figure,
        then=(("reach", "overnight", 0),),
        short=reach_figure.short,
        brief=brief.reach,
        lead=reach_figure.lead,
        known=(("windows no wider*", "proved"), ("some *", SEEN)),
    ),
)


@dataclass(frozen=True, eq=False)
class Answer:
    """What the committed results of one study say. Two are the same only where they are one object."""

    study: Study
    effort: Effort
    results: Results
    planned: Sequence[Run]
    tuned: Answer | None = None

    @cached_property
    def findings(self) -> list[Finding]:
        return import_module(f"levelfield.studies.{self.study.name.partition('-')[0]}").findings(self.results.compared)

    @property
    def hours(self) -> float:
        """Hours of a core: those of runs, each counted at the median of its arm, and of the trials that tuned them."""
        own = self.tuned is not None and self.tuned.study.name.partition("-")[0] == self.study.name
        tried = self.tuned.results.trials if own and self.tuned else self.results.trials
        trials = sum(float(trial.get("wall_s", 0.0)) for trial in tried)
        return (trials + sum(float(cost.get("wall_s", 0.0)) for cost in self.results.ledgers.values())) / HOUR


@cache
def answer(subject: Subject) -> Answer | None:
    """Returns the first of a subject's results that are committed; None where there is none."""
    found = next(filter(None, (_read(*named) for named in subject.studies)), None)
    if found is None or found.results.trials or subject.tuned is None:
        return found
    return replace(found, tuned=_read(*subject.tuned))


def _read(name: str, effort: Effort, trials: int) -> Answer | None:
    """Returns what is committed of a study, with so many trials in its name; None where nothing is."""
    study = Source.of(name, trials=trials).load()
    folder = committed.find(RESULTS, study.name, effort)
    return folder and Answer(study, effort, committed.read(folder, study, effort), study.runs(effort))


def _of(study: str, effort: Effort | None = None) -> Answer | None:
    """Returns the answer to the subject that a study answers first, at the effort that it is answered at or another."""
    subject = next(subject for subject in SUBJECTS if subject.studies[0][0] == study)
    return answer(replace(subject, studies=((study, effort, 0),)) if effort else subject)
