"""Measures Pathfinder against the public generator: CPU time per image and per try, one thread each, in one process.

    git clone https://github.com/drewlinsley/pathfinder PEERS/pathfinder      # at 7b53886, then repair it as below
    python benchmarks/generators_pathfinder.py --peers PEERS [--seconds 60]

At that commit the peer cannot save an image and draws its markers at 1/255. To repair it, make `_imresize` and
`_imsave` in `snakes.py` and `snakes2.py` scale any array that is not uint8 so that its smallest value becomes 0 and
its largest 255, as `scipy.misc` did. It needs scipy, opencv-python-headless, Pillow and matplotlib beside levelfield.

Both sides draw images with the same parameters; the peer also writes its PNG files. Rounds alternate between the two.
The time to find two contours varies tenfold between images, so tries are counted too: time per try compares the work,
and tries per image compare the distributions (ours never tries first directions that cannot succeed; `tries` is
scaled by how many there are). The page docs/speed-pathfinder.md is written from the rows.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import os
import platform
import random
import sys
import tempfile
import time
from dataclasses import MISSING, asdict, dataclass, fields
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import numpy as np

from levelfield.tasks._pathfinder.draw import draw, seeds
from levelfield.tasks._pathfinder.settings import DIFFICULTIES, Difficulty, Parameters, parameters
from levelfield.tasks._pathfinder.strokes import DEGREES, make_tables

CELLS: tuple[tuple[int, Difficulty], ...] = (
    *((32, d) for d in DIFFICULTIES), (64, "easy"), (64, "intermediate"), (128, "easy"), (128, "intermediate"),
    (128, "hard"), (256, "easy"), (256, "intermediate"), (256, "hard"),
)  # fmt: skip


@dataclass
class Row:
    """One measurement: ms of CPU time per image, and the machine on which it was taken."""

    size: int
    difficulty: str
    peer_ms: float = 0.0
    peer_images: int = 0
    peer_tries: float = 0.0
    ours_ms: float = 0.0
    ours_images: int = 0
    ours_tries: float = 0.0
    per_image: float = 0.0
    per_try: float = 0.0
    machine: str = ""


def load_peer(peers: Path) -> ModuleType:
    """The peer's module, checked to have been repaired."""
    folder = peers / "pathfinder"
    if not (folder / "snakes2.py").exists():
        raise SystemExit(f"{folder / 'snakes2.py'} does not exist: clone drewlinsley/pathfinder into {peers}.")
    os.environ.setdefault("MPLBACKEND", "Agg")
    sys.path.insert(0, str(folder))
    module = import_module("snakes2")
    if module.draw_circle([32, 32], [16, 16], 1.5, 2).max() < 200:
        raise SystemExit("The peer draws invisible markers: mend its _imresize and _imsave as this file's head says.")
    return module


def peer_arguments(p: Parameters, count: int, folder: str) -> SimpleNamespace:
    """Our parameters under the peer's names. It multiplies contour and paddle contrasts; distractors get the first."""
    return SimpleNamespace(
        contour_path=folder, batch_id=0, n_images=count, window_size=[p.size, p.size], padding=p.padding,
        antialias_scale=p.antialias, seed_distance=p.seed_distance, marker_radius=p.radius, contour_length=p.contour,
        distractor_length=p.distractor, num_distractor_snakes=p.distractors,
        snake_contrast_list=[p.distractor_contrast], use_single_paddles=False, max_target_contour_retrial=4,
        max_distractor_contour_retrial=p.contour_retrials, max_paddle_retrial=p.paddle_retrials,
        continuity=p.continuity, paddle_length=p.length, paddle_thickness=p.thickness,
        paddle_margin_list=list(p.margins), paddle_contrast_list=[p.contour_contrast / p.distractor_contrast],
        pause_display=False, save_images=True, save_metadata=True, segmentation_task=False,
    )  # fmt: skip


class Peer:
    """Counts the peer's tries while it draws."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.tries = module, 0
        self.search = module.two_snakes
        module.two_snakes = self.counted

    def counted(self, *arguments: object, **named: object) -> object:
        self.tries += 1
        return self.search(*arguments, **named)

    def draw(self, p: Parameters, count: int, seed: int) -> tuple[float, int]:
        """CPU seconds and tries for `count` images."""
        np.random.seed(seed)  # noqa: NPY002 (the peer draws from the global generators)
        random.seed(seed)
        self.tries = 0
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            begin = time.process_time()
            self.module.from_wrapper(peer_arguments(p, count, folder))
            return time.process_time() - begin, self.tries


def reachable(p: Parameters) -> float:
    """The share of first directions that our search tries; the peer's fails at once in the others."""
    return float(np.mean([len(make_tables(p, m).central) for m in p.margins])) / DEGREES


def measure(peer: Peer, size: int, difficulty: Difficulty, seconds: float) -> Row:
    """Alternates rounds until the peer has run for `seconds`; ours draws 20 images for each of the peer's."""
    p = parameters(size, difficulty)
    draw(p, seeds(0, "warm", 4))
    row = Row(size, difficulty, machine=f"{platform.machine()}, Python {platform.python_version()}")
    theirs, ours, tried, trials = 0.0, 0.0, 0, 0
    batch = 1
    while theirs < seconds:
        spent, tries = peer.draw(p, batch, seed=row.peer_images)
        theirs, tried, row.peer_images = theirs + spent, tried + tries, row.peer_images + batch
        begin = time.process_time()
        drawing = draw(p, seeds(1, "speed", 20 * batch, first=row.ours_images))
        ours += time.process_time() - begin
        trials, row.ours_images = trials + int(drawing.tries.sum()), row.ours_images + 20 * batch
        batch = max(1, int(0.1 * seconds / (theirs / row.peer_images)))
    row.peer_ms, row.ours_ms = 1e3 * theirs / row.peer_images, 1e3 * ours / row.ours_images
    row.peer_tries, row.ours_tries = tried / row.peer_images, trials / row.ours_images / reachable(p)
    row.per_image = row.peer_ms / row.ours_ms
    row.per_try = (row.peer_ms / row.peer_tries) / (row.ours_ms / row.ours_tries)
    return row


def read(path: Path) -> dict[tuple[int, Difficulty], Row]:
    """Rows of an earlier run, by cell."""
    if not path.exists():
        return {}
    kinds = {f.name: type(f.default) for f in fields(Row) if f.default is not MISSING}
    rows: dict[tuple[int, Difficulty], Row] = {}
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            size, difficulty = int(line.pop("size")), cast(Difficulty, line.pop("difficulty"))
            rows[size, difficulty] = Row(size, difficulty, **{k: kinds[k](v) for k, v in line.items()})
    return rows


def page(rows: list[Row]) -> str:
    """The page docs/speed-pathfinder.md, from the rows."""
    head = (
        "# Pathfinder: speed\n\nCPU time per image against the public generator (github.com/drewlinsley/pathfinder, "
        "mended as `benchmarks/generators_pathfinder.py` says, with the Arena's parameters), one thread each, in "
        f"alternating rounds of one process on {rows[0].machine}. A *try* is one start of the search for two contours; "
        "tries per image vary tenfold between images, so their means differ by chance between the two, most where few "
        "images were drawn. The last two columns are ratios; the one per try is free of that. "
        "Written by the benchmark; the numbers are in `results/speed-pathfinder.csv`.\n\n"
        "| size | difficulty | public ms (images, tries) | levelfield ms (images, tries) | per image | per try |\n"
        "|---|---|---|---|---|---|\n"
    )
    lines = [
        f"| {r.size} | {r.difficulty} | {r.peer_ms:.0f} ({r.peer_images}, {r.peer_tries:.1f}) | "
        f"{r.ours_ms:.3f} ({r.ours_images}, {r.ours_tries:.1f}) | {r.per_image:.0f} | {r.per_try:.0f} |\n"
        for r in rows
    ]
    return head + "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peers", type=Path, required=True, help="folder with a mended checkout named pathfinder")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU time of the peer in each cell")
    parser.add_argument("--only", default="", help="measure these cells again, such as 32-hard,128-easy")
    parser.add_argument("--out", type=Path, default=Path("results/speed-pathfinder.csv"))
    parser.add_argument("--page", type=Path, default=Path("docs/speed-pathfinder.md"))
    options = parser.parse_args()
    peer = Peer(load_peer(options.peers))
    rows = read(options.out) if options.only else {}
    for cell in CELLS:
        if not options.only or "{}-{}".format(*cell) in options.only.split(","):
            r = rows[cell] = measure(peer, *cell, options.seconds)
            print(f"{r.size:4} {r.difficulty:12} {r.peer_ms:8.1f} ms / {r.ours_ms:7.3f} ms, ", end="")
            print(f"{r.per_image:.0f} per image, {r.per_try:.0f} per try", flush=True)
    ordered = [rows[cell] for cell in CELLS if cell in rows]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(ordered[0])), lineterminator="\n")
        writer.writeheader()
        for row in map(asdict, ordered):
            writer.writerow({k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()})
    options.page.write_text(page(ordered))
    print(f"wrote {options.out} and {options.page}")


if __name__ == "__main__":
    main()
