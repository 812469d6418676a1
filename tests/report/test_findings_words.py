"""The page of findings says what is asked and what is answered in words that need no knowledge of the code."""

from __future__ import annotations

import csv
import importlib
import math
import re
from itertools import combinations
from types import ModuleType

import pytest
from made_answers import pretrained
from repository import ROOT, SCRIPTS

from levelfield.engine.find import Source
from levelfield.report import committed
from levelfield.report.decisions import ALPHA, Contrast, Seeds, difference
from levelfield.report.scatter import UNKNOWN, Scatter
from levelfield.report.verdicts import Key, Table, scores
from levelfield.spec.quantiles import t_quantile

PAGE = (ROOT / "docs" / "findings.md").read_text()
SECTIONS = dict(re.findall(r"^## (\d+)\. .*?\n(.*?)(?=^## )", PAGE, flags=re.DOTALL | re.MULTILINE))


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("subject", "sentence"),
    [
        (
            "the Transformer's lift holds at an equal allowance of steps (image8)",
            "At an equal allowance of steps, self-pretraining lifts the Transformer on pictures",
        ),
        ("self-pretraining lifts S4 (text)", "Self-pretraining lifts S4 on reviews"),
        (
            "self-pretraining lifts the Transformer with 1 % of the labels (image8)",
            "Self-pretraining lifts the Transformer on pictures with 1 % of the labels",
        ),
        (
            "dlr is level with S4 once both are pretrained (image8)",
            "Self-pretrained, DLR is at most 3 points behind S4 on",
        ),
        (
            "sinks helps rotary",
            "A window with attention sinks helps rotary attention at four times its training length",
        ),
        ("what no pattern fits", "What no pattern fits"),
        ("sLSTM and GRU hold all", "sLSTM and GRU hold all"),
    ],
)
def test_a_question_stands_by_itself(monkeypatch: pytest.MonkeyPatch, subject: str, sentence: str) -> None:
    assert script("findings_words", monkeypatch).asked(subject).startswith(sentence)


def test_scores_name_models_and_tasks_as_a_reader_does(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = script("findings_words", monkeypatch).scores
    facts = "On image8, conv11 has 44.4 % and s4 51.0 %. Measured against what a yes needs: +1.0 points."
    assert scores(facts) == "On pictures, kernel 11 has 44.4 % and S4 51.0 %."
    assert (
        scores("s4 is +1.2 points from rotary attention at first.")
        == "S4 is +1.2 points from rotary attention at first."
    )
    assert scores("At an equal allowance of steps that is +0.0 points.") == "–"


def test_no_question_or_answer_of_the_page_uses_names_of_the_code() -> None:
    cells = [
        row.split(" | ")[0] for text in SECTIONS.values() for row in text.splitlines() if re.match(r"\| [A-Zs]", row)
    ]
    answers = re.findall(r"^\*\*Our answer\.\*\* (.*)$", PAGE, flags=re.MULTILINE)
    assert len(cells) > 60 and len(answers) == len(SECTIONS)
    assert [
        text
        for text in [*cells, *answers]
        if re.search(r"\b(image8|listops|transformer_rotary|conv\d|\w+_\w+)\b", text)
    ] == []


def test_the_overview_counts_the_answers_of_each_section() -> None:
    rows = re.findall(r"^\| \[.*?\]\(#(\d+)-.*\| (\d+) yes, (\d+) no, (\d+) open \|", PAGE, flags=re.MULTILINE)
    assert len(rows) == len(SECTIONS) > 5
    for number, *said in rows:
        text = SECTIONS[number]
        told = [
            len(re.findall(rf"^\|.*\| {word} (?:\(\w+\) )?\|", text, flags=re.MULTILINE))
            for word in (r"\*\*yes\*\*", r"\*\*no\*\*", "(?:open|nothing can be said)")
        ]
        assert told == [int(count) for count in said], number


def test_the_page_of_studies_has_the_numbers_of_the_rows() -> None:
    """What docs/studies.md says of amos2025_small and miralles2025_enriched is written by hand."""
    text = " ".join((ROOT / "docs" / "studies.md").read_text().split())
    cells = {
        name: Table.of(
            committed.read(ROOT / "results" / f"{name}-overnight", Source(name).load(), "overnight").rows
        ).cells
        for name in ("amos2025_small", "miralles2025_enriched")
    }
    rotary, enriched = "transformer_rotary", cells["miralles2025_enriched"]
    pictures = [
        cells["amos2025_small"][Key("image8", rotary, p)].median for p in ("scratch", "scratch_matched", "spt_masked")
    ]
    assert "after, {:.1f}, {:.1f} and {:.1f}, of five".format(*pictures) in text
    short = [enriched[Key("image8", "conv11", protocol)].mean for protocol in ("scratch", "enriched")]
    assert "kernel 11 has {:.0f} % there with plain training, not {:.0f} (means)".format(*short) in text
    assert "the medians of all arms on pictures of 8 x 8 pixels are lower with enriched training" in text
    of_pictures = {key.model for key in enriched if key.task == "image8"}
    lower = [
        model
        for model in of_pictures
        if enriched[Key("image8", model, "enriched")].median < enriched[Key("image8", model, "scratch")].median
    ]
    assert len(lower) == len(of_pictures) == 4


def test_the_page_of_verdicts_has_the_noise_of_examples_that_both_arms_answered() -> None:
    text = " ".join((ROOT / "docs" / "verdicts.md").read_text().split())
    ends: dict[str, list[float]] = {"image8": [], "listops": []}
    for name in ("amos2025_small", "miralles2025_small", "miralles2025_enriched"):
        table = Table.of(
            committed.read(ROOT / "results" / f"{name}-overnight", Source(name).load(), "overnight").compared
        )
        for task, found in ends.items():
            arms = [arm for key, arm in table.cells.items() if key.task == task]
            assert {arm.examples for arm in arms} == {10_000 if task == "image8" else 5_000}
            pairs = (difference(*pair) for pair in combinations(arms, 2))
            found += [math.hypot(*pair._over_examples(ALPHA, up=True)) for pair in pairs]
    (low, high), (least, most) = ((min(found), max(found)) for found in ends.values())
    assert f"below {low:.1f} to {high:.1f} points with the 10,000 examples of pictures" in text
    assert f"below {least:.1f} to {most:.1f} points with the 5,000 of ListOps" in text


def test_the_page_says_how_often_the_rules_err_in_simulations_and_what_that_costs() -> None:
    with (ROOT / "results" / "false-alarms.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    wrong, reports = (sum(int(line[column]) for line in lines) for column in ("false_alarms", "reports"))
    worst = max(int(line["false_alarms"]) / int(line["reports"]) for line in lines)
    said = f"{100 * wrong / reports:.1f} % decide anything wrongly ({wrong} of {reports:,}), in the worst setting"
    assert f"{said} {100 * worst:.1f} %" in PAGE
    rows = re.findall(
        r"^\| three \| ([\d.]+) \| ([\d.]+) \|", (ROOT / "docs" / "verdicts.md").read_text(), re.MULTILINE
    )
    assert len(rows) == 1 and f"three seeds have to differ by [{rows[0][1]} standard deviations]" in PAGE


def test_intervals_by_operator_are_no_narrower_than_the_scatter_of_all_arms_makes_them() -> None:
    """The seeds of two arms happen to be alike among expressions of one operator."""
    rows = committed.read_rows(ROOT / "results" / "miralles2025_small-overnight")
    arms = {key: arm for key, arm in scores(rows, "root").items() if key.task == "listops" and key.place == "MAX"}
    far, short = (next(arm for key, arm in arms.items() if key.model == name) for name in ("gmlp", "conv11"))
    scatter = Scatter.pooled(arm.values for arm in arms.values())
    own, all_of = (difference(far, short, scatter=each).span() for each in (UNKNOWN, scatter))
    assert own and all_of and own.low > all_of.low + 0.5
    assert re.search(rf"^\| MAX \|.* {re.escape(str(all_of))} \|$", SECTIONS["6"], re.MULTILINE)


def test_wherever_random_positions_are_told_of_it_is_said_how_they_are_asked() -> None:
    said = "tested at consecutive ones, whereas Ruoss et al. draw them in tests, too: in training 32 of 512 were drawn"
    assert [number for number, text in SECTIONS.items() if "trained at random positions" in text] == ["8", "9"]
    assert said in SECTIONS["8"] and said in SECTIONS["9"]
    told = " ".join((ROOT / "docs" / "studies.md").read_text().split())
    assert "tested at consecutive positions, whereas its authors draw them in tests, too" in told


def test_the_middle_that_is_not_lost_is_counted_by_length() -> None:
    said = re.search(
        r"; (\d+) are answered no, (\d+|none) of them at the training length and (\d+|none) beyond it", SECTIONS["8"]
    )
    assert said
    rows = re.findall(
        r"^\| .* finds least in the middle (at|beyond) .* \| \*\*no\*\*", SECTIONS["8"], flags=re.MULTILINE
    )
    assert [len(rows), rows.count("at"), rows.count("beyond")] == [
        int(count.replace("none", "0")) for count in said.groups()
    ]


def test_the_answer_in_short_changes_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both made-up tasks gain 20 points, then none; the second sentence must not go on saying yes."""
    short = script("findings_summary", monkeypatch).never_from_scratch
    lifted, level, lower = (short(pretrained((40.0, 42.0, after), "s4")) for after in (62.0, 42.1, 22.0))
    assert lifted.startswith("Yes on ListOps: a small Transformer rises from 42.0 to 62.0 %") and "Open" not in lifted
    assert level.startswith("Open on ListOps (+0.1 points) and pictures (+0.1 points).")
    assert lower.startswith("The opposite is shown on ListOps and pictures.")
    told = [text.partition("Does it come closer to S4? Over scratch, as planned: ")[2] for text in (lifted, level)]
    gaps = [
        f"ListOps ({gap}, then 1.0 ahead) and pictures ({gap}, then 1.0 ahead)"
        for gap in ("20.0 behind", "18.5 behind")
    ]
    assert told[0] == (
        f"yes on {gaps[0]}. At an equal allowance of steps, which was asked after looking: yes on {gaps[1]}."
    ), "S4 has 60, 60.5 and 61 %, the Transformer 40, 42 and 62"
    assert told[1].startswith("open on ListOps and pictures. At an equal allowance")


def test_the_answer_in_a_line_changes_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    line = script("findings_brief", monkeypatch).never_from_scratch
    lifted, level, lower = (line(pretrained((40.0, 42.0, after), "s4")) for after in (62.0, 42.1, 22.0))
    rises = (
        "yes on ListOps of 11 to 63 tokens, where a small Transformer rises from 42.0 to 62.0 %; yes on pictures, where"
    )
    assert lifted.startswith(f"At an equal allowance of steps: {rises}") and "open" not in lifted
    assert level.startswith("At an equal allowance of steps: open on ListOps of 11 to 63 tokens and pictures.")
    assert lower.startswith("At an equal allowance of steps: no on ListOps of 11 to 63 tokens and pictures.")
    assert lifted.endswith("Does it come closer to S4? Yes on ListOps and pictures.")
    assert level.endswith("Does it come closer to S4? Open on ListOps and pictures.")


def test_the_line_on_short_ranges_says_how_models_were_trained_and_what_plain_training_gives() -> None:
    """The enriched gMLP, of whose gain the line tells, has less on pictures than a short kernel plainly trained."""
    study = Source("miralles2025_enriched").load()
    found = committed.read(ROOT / "results" / "miralles2025_enriched-overnight", study, "overnight")
    short, whole = (Table.of(found.rows).cells[Key("image8", model, "scratch")].mean - 10 for model in ("conv11", "s4"))
    said = f"With plain training on pictures: {100 * short / whole:.0f} % of S4's."
    (line,) = re.findall(r"^- \*\*Is a short range enough\?.*", (ROOT / "README.md").read_text(), re.MULTILINE)
    (row,) = re.findall(r"^\| \[Most of it is local\].*", PAGE, re.MULTILINE)
    for text in (line, row):
        assert "With enriched training, seeing 21 steps brings " in text and said in text


def test_the_overview_answers_in_at_most_sixty_five_words() -> None:
    answers = re.findall(r"^\| \[.*?\]\(#\d+-.*?\) \(.*?\) \| (.*?) \|", PAGE, flags=re.MULTILINE)
    assert len(answers) == len(SECTIONS)
    assert [answer for answer in answers if len(answer.split()) > 65] == []


def test_answers_that_were_open_before_the_rules_changed_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until 26 November seeds had the degrees of freedom of their own arm, and arms shared no test examples."""

    def before(asked: Contrast, level: float) -> float:
        trained = [(weight, arm) for weight, arm in asked.terms if arm.trained]
        if asked.paired:
            trained = [(1.0, Seeds(asked.by_seed))]
        floor = asked.scatter.deviation**2
        parts = [(w**2 * max(arm.variance, floor) / len(arm.values), len(arm.values) - 1) for w, arm in trained]
        total = sum(part for part, _ in parts)
        degrees = total**2 / sum(part**2 / count for part, count in parts) if total else 1.0
        return t_quantile(level, max(1.0, math.floor(20 * degrees) / 20)) * math.sqrt(total)

    page, subjects = script("findings", monkeypatch), script("findings_subjects", monkeypatch)
    found = {subject: subjects.answer(subject) for subject in subjects.SUBJECTS[:9]}  # others count seeds
    now = {subject: answer.findings for subject, answer in found.items()}
    monkeypatch.setattr(Contrast, "over_seeds", before)
    marked, due, seen = set(), set(), set()
    for subject, findings in now.items():
        rows, name = found[subject].results.rows, found[subject].study.name.partition("-")[0]
        asked = importlib.import_module(f"levelfield.studies.{name}").findings(rows)
        was = {finding.subject: finding.decided for finding in asked}
        for finding in findings:
            why = page._why(subject, finding)
            if finding.decided and why == subjects.RULE:
                marked.add((name, finding.subject))
            asked_anew = finding.subject.startswith("a layout")  # by another question, since 27 November
            if finding.decided and (not was[finding.subject] or asked_anew) and why != subjects.SEEN:
                due.add((name, finding.subject))
            if finding.decided and not was[finding.subject] and why == subjects.SEEN:
                seen.add((name, finding.subject))
    assert marked == due and marked
    assert ("amos2025_small", "the gap narrows at an equal allowance of steps (text)") in seen
    assert "after all rows were known; so were some of those marked *seen*" in " ".join(PAGE.split())
    assert f"{len(marked)} are marked *rule*" in " ".join(PAGE.split())


def test_answers_that_hang_on_how_often_degrees_of_freedom_count_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/verdicts.md says would be open if the deviation of all arms counted once in a question."""

    def once(asked: Contrast, level: float) -> float:
        trained = [(1.0, Seeds(asked.by_seed))] if asked.paired else [each for each in asked.terms if each[1].trained]
        floor, known = asked.scatter.deviation**2, asked.scatter.degrees
        parts = [(w**2 * max(arm.variance, floor) / len(arm.values), arm) for w, arm in trained]
        total = sum(part for part, _ in parts)
        own = sum(part**2 / (len(arm.values) - 1) for part, arm in parts if arm.variance > floor)
        common = [(part, max(len(arm.values) - 1, known)) for part, arm in parts if part and arm.variance <= floor]
        if common:
            own += sum(part for part, _ in common) ** 2 / max(degrees for _, degrees in common)
        return t_quantile(level, max(1.0, math.floor(20 * total**2 / own) / 20)) * math.sqrt(total) if total else 0.0

    subjects = script("findings_subjects", monkeypatch)
    found = [subjects.answer(subject) for subject in subjects.SUBJECTS[:9]]  # others count seeds

    def answers() -> set[tuple[str, str, int]]:
        asked = {each: importlib.import_module(f"levelfield.studies.{each.study.name}") for each in found}
        made = {each.study.name: module.findings(each.results.compared) for each, module in asked.items()}
        return {(name, finding.subject, finding.decided) for name, findings in made.items() for finding in findings}

    now = answers()
    monkeypatch.setattr(Contrast, "over_seeds", once)
    changed = {(study, subject) for study, subject, _ in now - answers()}
    assert changed == {
        ("amos2025_small", "the gap narrows at an equal allowance of steps (text)"),
        ("amos2025_labels", "self-pretraining lifts the Transformer with 10 % of the labels (image8)"),
    }
    assert "On the page of findings two answers hang on that" in " ".join(
        (ROOT / "docs" / "verdicts.md").read_text().split()
    )


def test_the_answers_of_s4_on_reviews_lead_to_the_arm_that_trains_on() -> None:
    rows = [line for line in SECTIONS["1"].splitlines() if "section 2 has one that takes all steps" in line]
    asked = (
        "lifts S4 on reviews",
        "lifts S4 on reviews",
        "At an equal allowance of steps, the Transformer comes closer",
    )
    assert len(rows) == 3 and all(any(question in row for row in rows) for question in asked)
    assert all("except for pretraining, which reached its cap" in row for row in rows)
    assert "dropout" in SECTIONS["2"].partition("What would change our mind")[2]


def test_what_ended_the_runs_of_reviews_is_what_the_rows_and_logs_say() -> None:
    """Of the self-pretrained runs the first phase stood at its cap; those that train on were best before their end."""
    with (ROOT / "results" / "amos2025_patience-overnight" / "rows.csv").open(newline="") as file:
        capped = [float(row["value"]) for row in csv.DictReader(file) if row["metric"] == "phases_at_cap"]
    assert capped == [0.5] * 6
    told = SECTIONS["2"]
    assert "their pretraining reached its cap, and patience ended the rest" in told
    assert "6 of the 6 with patience were still improving at their cap" in told
    said = re.search(r"In all 15 runs from scratch validation was best after ([\d,]+) to ([\d,]+) steps", told)
    assert said and all(0 < int(steps.replace(",", "")) < 18_000 for steps in said.groups())


def test_what_a_paper_does_not_claim_is_not_said_to_be_its_claim() -> None:
    """huang2024 says that all models struggle beyond their training length, and calls for studies of why."""
    claims = {number: text.partition("**Our answer.**")[0] for number, text in SECTIONS.items()}
    assert "the claim is ours" in claims["10"] and "on whatever is asked" not in claims["9"]


def test_the_page_says_how_long_sequences_are_in_training() -> None:
    """At a certified range of 256, they have 783 steps."""
    longest = {
        name: max(run.task.max_length for run in Source(name).load().runs(effort))
        for name, effort in (("amos2025_small", "overnight"), ("huang2024_longer", "overnight"), ("reach", "minutes"))
    }
    assert longest["reach"] > 256 >= max(longest["amos2025_small"], longest["huang2024_longer"])
    assert "at most 256 steps, except at certified ranges, whose sequences are longer" in " ".join(PAGE.split())
    assert "9 learn 256, the longest range asked of all" in PAGE


def test_what_else_makes_long_texts_harder_is_said_where_they_are_told_of() -> None:
    """At 512 words, 255 pairs are before the question; guessing in all haystacks is far above the end of the axis."""
    assert "it holds 15 of them at 32 words and 255 at 512" in SECTIONS["8"]
    assert re.search(
        r"all haystacks together, in which guessing has 4\d % at 32.* 3\d % at 2,048 words", SECTIONS["10"]
    )


def test_what_is_asked_twice_of_pictures_has_both_answers() -> None:
    said = re.search(r"answered (\w+) by 5 seeds in section 1, and (\w+) here by 3 seeds", SECTIONS["3"])
    assert said
    for word, section, end in zip(said.groups(), "13", ("", " with 100 % of the labels"), strict=True):
        row = rf"^\| Self-pretraining lifts the Transformer on pictures{end} \| \**{word}\**(?: \(rule\))? \|"
        assert re.search(row, SECTIONS[section], flags=re.MULTILINE)


def test_the_evidence_names_the_arms_that_took_the_highest_rate() -> None:
    """Counted anew, from the trials of section 1 and of the needles."""
    for number, folder, models in (
        ("1", "amos2025_small-overnight", {"s4": "all arms of S4", "transformer_rotary": "2 of 9 arms of the Transf"}),
        ("8", "huang2024_small-tuned-minutes", {"griffin": "Griffin", "rglru": "RG-LRU"}),
    ):
        with (ROOT / "results" / folder / "trials.csv").open() as file:
            trials = list(csv.DictReader(file))
        top = max(float(trial["lr"]) for trial in trials)
        taken = {trial["model"] for trial in trials if trial["chosen"] == "True" and float(trial["lr"]) == top}
        assert taken == set(models)
        evidence = SECTIONS[number].partition("**Evidence.**")[2]
        said = evidence.partition("the highest tried was best for ")[2].partition(")")[0]
        assert all(name in said for name in models.values()) and f"{len(trials)} trials" in evidence
    assert "trained at random positions had no trials of its own" in SECTIONS["8"]
    assert all("No arm had trials of its own here" in SECTIONS[number] for number in ("9", "10"))
    assert all("which was not tuned" in SECTIONS[number] for number in ("11", "12"))


def test_a_share_has_the_interval_of_its_question() -> None:
    """Of the gain over guessing that medians have; the page takes that of means."""
    for task in ("ListOps", "pictures"):
        row = next(line for line in SECTIONS["6"].splitlines() if f"sees more, on {task} |" in line)
        low, high = (float(end) for end in re.findall(r"[+-][\d.]+(?= to|\))", row)[:2])
        whole, guessing = (float(score) for score in re.findall(r"(?:unbounded model|guessing) ([\d.]+) %", row))
        said = re.search(rf"\(95 % interval about (\d+) to (\d+)\) on {task}", SECTIONS["6"])
        ends = [90 + 100 * end / (whole - guessing) for end in (low, high)]
        assert said and [int(end) for end in said.groups()] == pytest.approx(ends, abs=1.5)
