"""Writes the mixers' part of docs/mixers.md from their files, parity.md, measured speeds and committed results.

    python docs/scripts/gallery.py           # rewrites the list, the figure and what is between the markers of a mixer
    python docs/scripts/gallery.py --check   # exit 1 if that would change anything

What is written by hand about a mixer follows its `<!-- end -->` and is kept. A mixer without a section gets one; the
order is that of `classes()`.
"""

from __future__ import annotations

import csv
import dataclasses
import inspect
import re
import sys
from pathlib import Path

import measured
import torch

from levelfield import published
from levelfield.cli import listing
from levelfield.mixers import classes
from levelfield.spec import MixerConfig

DOCS = Path(__file__).resolve().parents[1]

PAGE, FIGURE = DOCS / "mixers.md", DOCS / "figures" / "mixers.png"
RESULTS = DOCS.parent / "results"
SPEED = RESULTS / "speed-mixers.csv"
WIDTH, LENGTH = 256, 4096
BEGIN, END = "<!-- gallery -->", "<!-- end of the gallery -->"
LIST = re.compile(r"<!-- list of mixers -->.*?<!-- end -->", re.DOTALL)
SECTION = re.compile(r"<!-- mixer: (\w+) -->.*?<!-- end -->\n(.*?)(?=<!-- mixer: |\Z)", re.DOTALL)
KEY = re.compile(r"\b[a-z]+(?:19|20)\d\d[a-z]*\b")


def filled(text: str) -> str:
    """The page with its generated parts made anew. Raises ValueError where notes belong to no mixer."""
    before, rest = text.split(BEGIN)
    region, after = rest.split(END)
    notes = {name: note.strip() for name, note in SECTION.findall(region)}
    orphans = [name for name, note in notes.items() if note and name not in {m.label for m in classes()}]
    if orphans:
        raise ValueError(f"{PAGE.name} has notes on {', '.join(orphans)}, which are no mixers: move them.")
    parts = ["\n\n".join(p for p in (section(m), notes.get(m.label, "")) if p) for m in classes()]
    before = LIST.sub(lambda _: f"<!-- list of mixers -->\n\n{overview()}\n\n<!-- end -->", before)
    return f"{before}{BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{END}{after}"


def overview() -> str:
    head = "| mixer | what it is | complexity | carries at T = 4,096 | parameters |\n|---|---|---|---|---|"
    lines = []
    for mixer in classes():
        config = reference(mixer)
        what = listing.first_sentence(mixer)
        size = config.state_size(WIDTH, LENGTH) if "causal" in mixer.directions else None
        cells = (f"[`{mixer.label}`](#{mixer.label})", what, f"`{mixer.complexity}`", _count(size), _parameters(config))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([head, *lines])


def section(mixer: type[MixerConfig]) -> str:
    config = reference(mixer)
    settings = ", ".join(_setting(field) for field in dataclasses.fields(mixer))
    about = " ".join((inspect.getdoc(mixer) or "").split())
    facts = [
        f"complexity: `{mixer.complexity}`; parameters: {_parameters(config)}",
        f"reach: {_reach(config)}; directions: {' and '.join(sorted(mixer.directions, reverse=True))}",
        f"carries: {_carries(config)}",
        f"speed: {speed(mixer.label)}",
        *measured.facts(mixer.label, measured.scores(RESULTS)),
        *(f"parity: {line}" for line in parity(mixer.label)),
        *(f"{key}: {citation(key)}" for key in dict.fromkeys([mixer.paper, *KEY.findall(about)])),
    ]
    lines = "\n".join(f"- {fact}" for fact in facts)
    parts = (f"### {mixer.label}", opening(mixer), about, f"Settings: {settings}.", lines)
    return f"<!-- mixer: {mixer.label} -->\n\n" + "\n\n".join(parts) + "\n\n<!-- end -->"


def opening(mixer: type[MixerConfig]) -> str:
    """Of the file's docstring: the first paragraph, its equations, and what the letters in them are."""
    doc = inspect.cleandoc(sys.modules[mixer.__module__].__doc__ or "")
    paragraphs = doc.split("\n\n")
    equations = [p for p in paragraphs if p.startswith("    ")][:1]
    letters = [doc[doc.index("Letters:") :].split("\n\n")[0]] if "Letters:" in doc else []
    return "\n\n".join([paragraphs[0], *equations, *letters])


def reference(mixer: type[MixerConfig]) -> MixerConfig:
    """The defaults, with the bound set where there is one."""
    bounded = any(field.name == "bound" for field in dataclasses.fields(mixer))
    return dataclasses.replace(mixer(), bound=LENGTH) if bounded else mixer()


def citation(key: str) -> str:
    """Raises KeyError for a key that nobody explained."""
    return published.library()[key].citation


def parity(label: str) -> list[str]:
    """The rows of parity.md on this mixer: of which settings, with what, and the largest error."""
    rows = [line.strip("| ").split(" | ") for line in (DOCS / "parity.md").read_text().splitlines() if "|" in line]
    found = [f"{row[1]}{_condition(row[0], label)}: {row[3]}" for row in rows if f"`{label}`" in row[0]]
    return found or ["with the paper's equations, written out in its test; with no other implementation"]


def _condition(compared: str, label: str) -> str:
    """What stands after the mixer's name, where other settings than its defaults were compared."""
    rest = compared.partition(f"`{label}`")[2]
    return f"; only with {rest.removeprefix(' with').strip(', ')}" if rest.startswith((", ", " with ")) else ""


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def speed(label: str) -> str:
    """Forward and backward of one layer, per step, as `benchmarks/mixers.py` measured it."""
    rows = list(csv.DictReader(SPEED.read_text().splitlines())) if SPEED.exists() else []
    ours = [r for r in rows if label in (r.get("mixer"), r.get("group")) and r["side"] == "ours" and r["us_per_token"]]
    each = [f"{_short(float(r['us_per_token']))} at T = {int(r['length']):,}" for r in ours]
    return f"{', '.join(each)} (µs a step, forward and backward, one thread)" if each else "not measured"


def _setting(field: dataclasses.Field[object]) -> str:
    shown = f"`{field.name}={field.default!r}`".replace("'", '"')
    others = [o for o in re.findall(r"'(\w+)'", str(field.type)) if o != field.default]
    return f"{shown} (or {', '.join(f'`{o}`' for o in others)})" if others else shown


def _reach(config: MixerConfig) -> str:
    field = config.receptive_field
    reach = "any distance" if field is None else f"{field} steps, itself among them"
    return reach if config.max_length is None else f"{reach}, in sequences of at most `bound` steps"


def _carries(config: MixerConfig) -> str:
    if "causal" not in config.directions:
        return "nothing, as it is bidirectional"
    size, half = (config.state_size(WIDTH, length) for length in (LENGTH, LENGTH // 2))
    before = config.state_size(WIDTH, LENGTH - 1)
    growth = "" if size is None else " as at any other" if size == half else ", growing with T"
    if size == half and size != before:
        growth = f", {_count(before)} a step before"
    return f"{_count(size)} numbers at T = {LENGTH:,}{growth}"


def _parameters(config: MixerConfig) -> str:
    counts = []
    for causal in (True, False):
        if ("causal" if causal else "bidirectional") in config.directions:
            layer = config.build(WIDTH, causal=causal, layer=0, generator=torch.Generator().manual_seed(0))
            counts.append(sum(p.numel() * (2 if p.is_complex() else 1) for p in layer.parameters()))
    return f"{counts[0]:,}" if len(set(counts)) == 1 else f"{counts[0]:,} causal, {counts[1]:,} in two directions"


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


if __name__ == "__main__":
    page = PAGE.read_text()
    made = filled(page)
    if "--check" in sys.argv:
        sys.exit(page != made and "docs/mixers.md is out of date: run python docs/scripts/gallery.py")
    PAGE.write_text(made)
    FIGURE.write_bytes(measured.draw(measured.scores(RESULTS)))
