"""Writes a report's files into one folder, and removes what an earlier report left there.

    write(Path("report/demo-minutes"), {"report.html": page}, {"figures/gap": figure}, stale=("figures/*.svg",))
    # [.../report.html, .../figures/gap.svg, .../figures/gap.png]

A figure of an earlier report, which showed other rows, must not stay beside a page that does not show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from levelfield.files import atomic, disk_errors
from levelfield.report.plots import Figure
from levelfield.report.style import PAGE


def write(to: Path, texts: Mapping[str, str], figures: Mapping[str, Figure], stale: Sequence[str] = ()) -> list[Path]:
    """Returns the paths, texts first. Raises UserError where the disk is full or does not let us write.

    texts: by file name. figures: by file name without ending, each written as SVG and as PNG. stale: patterns of files
    that are removed unless they have just been written.
    """
    written: list[Path] = []
    with disk_errors(to):
        to.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            with atomic(to / name) as partial:
                partial.write_text(text, encoding="utf-8")
            written.append(to / name)
        for name, figure in figures.items():
            path = to / name
            path.parent.mkdir(exist_ok=True)
            if path.parent == to:  # its marks lead to the page beside it, not above it
                figure = replace(figure, svg=figure.svg.replace(PAGE, PAGE.removeprefix("../")))
            written += figure.write(path.parent, path.name)
        for path in {path for pattern in stale for path in to.glob(pattern)} - set(written):
            path.unlink()
    return written
