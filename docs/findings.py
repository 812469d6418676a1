"""Writes docs/findings.md and its figure from committed results alone: what each paper claims and what was found here.

    python docs/findings.py           # writes docs/findings.md, docs/figures/findings.png and what README says of it
    python docs/findings.py --check   # exit 1 if that would change the page

Every number on the page is computed from `results/STUDY-EFFORT/`: by the study's own rule, and from rows and ledgers.
What a claim is, and what would change our mind, is written in `SUBJECTS` below.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path
from statistics import median

from levelfield.engine.find import Source, references
from levelfield.report import committed
from levelfield.report.against_printed import PrintedSources, all_counterparts
from levelfield.report.axis_curves import curve
from levelfield.report.cells import gather
from levelfield.report.verdicts import Finding, Table, capped, power
from levelfield.runs.results import Results
from levelfield.spec import Effort, Study
from levelfield.spec.study import AT_CAP

sys.path.insert(0, str(Path(__file__).resolve().parent))

import by_operator
import contents
import findings_figure
import findings_shown
import leads

ROOT = Path(__file__).resolve().parent.parent
PAGE, FIGURE = ROOT / "docs" / "findings.md", ROOT / "docs" / "figures" / "findings.png"
RESULTS, README = ROOT / "results", ROOT / "README.md"
HOUR = 3_600


@dataclass(frozen=True)
class Subject:
    """One paper's claim and the committed results that answer it.

    studies: (study, effort), the first of them that has results is taken. trials: how many recipes its name says were
    tried, 0 where the study itself tunes or nothing is tuned. change: what would change our mind. asks: the question
    that is put to every subject whose name, a single word, does not say. paired: whether a model is compared with
    itself. axis: of a curve that is drawn below the answer, "" for none. operators: whether ListOps is shown by its
    operators in place of the curve. lead: what the answer rests on and leaves open. known: of questions, by patterns of
    their names, whose answer was known beforehand, why.
    """

    title: str
    paper: str
    claim: str
    studies: tuple[tuple[str, Effort, int], ...]
    change: str
    asks: str = ""
    paired: bool = False
    axis: str = ""
    operators: bool = False
    lead: Callable[[Answer], Iterator[str]] | None = None
    known: tuple[tuple[str, str], ...] = ()

    @property
    def figure(self) -> Path:
        return FIGURE.with_name(f"findings-{self.studies[0][0].replace('_', '-')}.png")


SUBJECTS = (
    Subject(
        "Never train from scratch",
        "amos2025",
        "Trained from scratch, Transformers look worse than they are. Self-pretraining on the task's own training "
        "inputs lifts them and removes most of their distance to state-space models.",
        (("amos2025_small", "overnight", 0),),
        "A lift that stays once the arm from scratch has as many steps: on a task of 1,024 steps and more, with models "
        "of the printed size (`levelfield run amos2025_table2 --effort paper`).",
        lead=leads.never_from_scratch,
    ),
    Subject(
        "Where labels are scarce",
        "amos2025",
        "The fewer labels there are, the more self-pretraining on the task's own inputs brings.",
        (("amos2025_labels", "overnight", 0),),
        "On pictures, more seeds with 1 and 10 % of the labels: `levelfield run amos2025_labels --effort overnight "
        "--filter 'image8-*'`.",
        lead=leads.scarce_labels,
        known=(("*(in_context_recall)", "control"),),
    ),
    Subject(
        "Where initial values are random",
        "amos2025",
        "From scratch, the initial values of state-space models, designed for long sequences, and their structure are "
        "needed; after self-pretraining they hardly are (figure 2).",
        (("amos2025_starts", "overnight", 0),),
        "Pictures of 1,024 steps, where what is far needs a memory that random values do not give, and every parameter "
        "redrawn (`levelfield run amos2025_figure2 --effort paper`).",
        lead=leads.starts,
    ),
    Subject(
        "Most of it is local",
        "miralles2025",
        "Convolutions whose kernels see at most 61 steps a layer come close to the best scores of the Long Range "
        "Arena, and on text short ones do: most of what it measures is local.",
        (("miralles2025_small", "overnight", 0),),
        "A natural task on which a kernel of 11 stays far below whatever sees more, under equal and enriched training "
        "(`levelfield run miralles2025_table1 --effort paper`).",
        "kernels up to 11 have 90 % of the gain: ",
        operators=True,
        lead=leads.local,
        known=(("reach", "proved"),),
    ),
    Subject(
        "Enriched training and positions",
        "miralles2025",
        "More varied training inputs lift every architecture and bring Transformers near to state-space models, and "
        "position encodings decide how far.",
        (("miralles2025_enriched", "overnight", 0),),
        "A lift from augmentation that suits such small pictures, or on pictures of the printed size "
        "(`levelfield run miralles2025_table3 --effort paper`).",
        lead=lambda found: leads.enriched(found, _of("amos2025_small")),
        known=(("positions lift attention*", "control"),),
    ),
    Subject(
        "How long is long",
        "huang2024",
        "Beyond the length that a model was trained at, scores drop steeply, whatever the architecture (section 4, "
        "where RWKV is a mild exception).",
        (("huang2024_small", "overnight", 0), ("huang2024_small", "minutes", 4)),
        "An architecture that keeps its recall at several times its training length in every haystack and over seeds; "
        "or the same curves for models with billions of parameters (`levelfield ruler`).",
        "in some haystack, more than half is lost at twice the length: ",
        paired=True,
        lead=leads.beyond,
        known=(("window helps*", "known"), ("sinks helps*", "known")),
    ),
    Subject(
        "What a layer can compute",
        "Grazzi et al. 2024 and others",
        "Beyond the length of training, which machines a recurrence follows is decided by the eigenvalues of its "
        "transitions. These separations are known, and so they test the harness.",
        (("state_tracking", "minutes", 0),),
        "Longer training (`levelfield run state_tracking --effort overnight`), by which those that should fail learn "
        "parity at the length of training first, and sLSTM and GRU may hold all machines.",
        paired=True,
        axis="length",
        known=(("negative eigenvalues hold parity", "known"), ("two Householder factors hold A5", "known")),
    ),
)
PRINTED: tuple[tuple[str, Effort], ...] = (("amos2025_table2", "minutes"), ("miralles2025_table1", "minutes"))
INTRODUCTION = """\
# Findings

`python docs/findings.py` writes this page from the rows in [results](../results/README.md); a test checks that it is
theirs. Every answer comes from a rule in the code of its study, which is applied to all rows alike
([verdicts](verdicts.md), with [what was changed after looking](verdicts.md#what-was-changed-after-looking)). It holds
for the tasks and sizes named here: models of some hundred thousand parameters at most, trained on sequences of 256
steps and fewer. Nothing is said about the printed sizes, which need GPUs. Each claim can be put to the test at that
size by one command.

![](figures/findings.png)
"""


@dataclass(frozen=True)
class Answer:
    """What the committed results of one study say."""

    study: Study
    effort: Effort
    results: Results
    planned: int

    @property
    def findings(self) -> list[Finding]:
        return import_module(f"levelfield.studies.{self.study.name.partition('-')[0]}").findings(self.results.rows)

    @property
    def hours(self) -> float:
        """Hours of a core: those of runs, and of the trials that tuned them."""
        trials = sum(float(trial.get("wall_s", 0.0)) for trial in self.results.trials)
        return (trials + sum(float(cost.get("wall_s", 0.0)) for cost in self.results.ledgers.values())) / HOUR


@cache
def answer(subject: Subject) -> Answer | None:
    """Returns the first of a subject's results that are committed; None where there is none."""
    for name, effort, trials in subject.studies:
        study = Source.of(name, trials=trials).load()
        folder = committed.find(RESULTS, study.name, effort)
        if folder is not None:
            planned = len(study.runs(effort))
            return Answer(study, effort, committed.read(folder, study, effort), planned)
    return None


def _of(study: str) -> Answer | None:
    """Returns the answer to the subject that a study answers first."""
    return answer(next(subject for subject in SUBJECTS if subject.studies[0][0] == study))


def page() -> str:
    answers = {subject: answer(subject) for subject in SUBJECTS}
    introduction = findings_figure.embedded(INTRODUCTION, findings_figure.caption(pictured()))
    parts = [introduction, _counted({subject: found.findings for subject, found in answers.items() if found})]
    for number, (subject, found) in enumerate(answers.items(), 1):
        parts += [f"## {number}. {subject.title} ({subject.paper})\n", f"**Claim.** {subject.claim}\n"]
        parts += _answered(found, subject) if found else ["**Answer.** None yet: no results are committed.\n"]
        if found and subject.axis:
            parts += [f"![Scores along {subject.axis} in {found.study.name}](figures/{subject.figure.name})\n"]
        if found and subject.operators:
            parts += by_operator.table(found.results)
            parts += [f"![Scores by root operator in {found.study.name}](figures/{subject.figure.name})\n"]
        parts += [f"**What would change our mind.** {subject.change}\n"]
    return contents.filled("\n".join([*parts, *_printed()]) + "\n")


def _counted(answers: Mapping[Subject, Sequence[Finding]]) -> str:
    """Says how the questions were answered, and which of these answers could have come as a surprise."""
    every = [(finding, _why(subject, finding)) for subject, found in answers.items() for finding in found]
    said = Counter(findings_shown.WORDS[finding.decided] for finding, _ in every)
    known = sum(bool(why) for finding, why in every if finding.decided)
    decided = said["yes"] + said["no"]
    return (
        f"Of {len(every)} questions {said['yes']} have the answer yes, {said['no']} no, and {len(every) - decided} are "
        f"open. {known} of the {decided} answers were known beforehand and test the harness: controls, what is proved, "
        "and what others have shown. Those say so in brackets.\n"
    )


def _why(subject: Subject, finding: Finding) -> str:
    return next((why for pattern, why in subject.known if fnmatchcase(finding.subject, pattern)), "")


def _answered(found: Answer, subject: Subject) -> Iterator[str]:
    rows, findings = found.results.rows, found.findings
    if subject.lead:
        yield f"**In short.** {chr(10).join(subject.lead(found))}\n"
    head = f"**Answer**, of `{found.study.name}` at effort `{found.effort}`. {capped(rows)}".rstrip()
    yield f"{head}\n"
    yield "| question | answer | difference of means, less the limit | numbers (medians) |\n|---|---|---|---|"
    for finding in findings:
        span = str(finding.span) if finding.span else "–"
        word = findings_shown.WORDS[finding.decided] if finding.decided or finding.seen else "nothing can be said"
        facts = finding.facts.partition(" Against the limit")[0]
        asks = "" if " " in finding.subject else subject.asks
        why = f" ({known})" if finding.decided and (known := _why(subject, finding)) else ""
        yield f"| {asks}{finding.subject} | **{word}**{why} | {span} | {facts} |"
    seen = "" if subject.paired else f" {power(Table.of(rows), len(findings))}"
    yield f"\n**Evidence.** {_evidence(found)}{seen}\n"


def _evidence(found: Answer) -> str:
    runs, rows = len(found.results.ledgers), found.results.rows
    failed = sum(cell.failures.total() for cell in gather(found.results).cells)
    capped_runs = {row.get("run") for row in rows if row.get("metric") == AT_CAP and row.get("value", 0.0) > 0}
    patient = {row.get("run") for row in rows if row.get("metric") == AT_CAP}
    stopped = f" {len(capped_runs)} of {len(patient)} runs reached their cap of steps." if patient else ""
    trials = f" and {len(found.results.trials)} trials of recipes" if found.results.trials else ""
    return (
        f"{runs} of {found.planned} planned runs{trials}, {found.hours:.1f} core-hours, {failed} runs failed or at "
        f"chance.{stopped} Rows and ledger: [results/{found.study.name}-{found.effort}]"
        f"(../results/{found.study.name}-{found.effort})."
    )


def _printed() -> Iterator[str]:
    yield "## Cells measured beside printed ones\n"
    yield "Two seeds after minutes of training beside models and tasks of the printed size: these rows show that the"
    yield "printed cells have runs, and no difference between the columns means anything.\n"
    yield "| study, effort | task | model | protocol | seeds | ours (%) | printed (%) |\n|---|---|---|---|---|---|---|"
    for name, effort in PRINTED:
        study = Source(name).load()
        folder = committed.find(RESULTS, study.name, effort)
        if folder is None:
            continue
        results = committed.read(folder, study, effort)
        cells = gather(results)
        printed = all_counterparts(cells, results, PrintedSources(study.published, references(study.published)))
        for cell in cells.cells:
            values = [score.value for score in cell.scores if score.value is not None]
            theirs = [c for c in printed.get(cell.arm, ()) if c.value is not None]
            if values and theirs:
                arm, said = cell.arm, ", ".join(f"{c.value:g} ({c.where})" for c in theirs)
                ours = f"{median(values):.1f}"
                yield (
                    f"| `{name}`, {effort} | {arm.task} | {arm.model_label} | {arm.protocol} | {len(values)} | {ours} "
                    f"| {said} |"
                )


def pictured() -> dict[str, Answer | None]:
    """Returns the answers that the figure shows, by study."""
    by_study = {subject.studies[0][0]: subject for subject in SUBJECTS}
    return {study: answer(by_study[study]) for study in findings_figure.PANELS}


def draw_curve(subject: Subject, found: Answer) -> bytes:
    """Draws the scores of every model of a study along the subject's axis, as its report does."""
    cells = gather(found.results)
    figure = curve(found.results, cells, subject.axis, cells.metric, PrintedSources((), {}))
    assert figure, f"{found.study.name} has no scores along {subject.axis}"
    return figure.png


def main() -> int:
    text = page()
    if "--check" in sys.argv:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    FIGURE.write_bytes(findings_figure.draw(pictured()))
    readme = README.read_text(encoding="utf-8")
    README.write_text(findings_figure.embedded(readme, findings_figure.caption(pictured())), encoding="utf-8")
    for subject in SUBJECTS:
        if subject.axis and (found := answer(subject)):
            subject.figure.write_bytes(draw_curve(subject, found))
        if subject.operators and (found := answer(subject)):
            subject.figure.write_bytes(by_operator.figure(found.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
