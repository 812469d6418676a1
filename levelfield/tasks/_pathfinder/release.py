"""Reads the official Pathfinder folders of the Long Range Arena release (`lra_release.gz`).

pathfinder32/curv_contour_length_14/metadata/0.npy      text in spite of its name, one image a line:
    imgs/0 sample_0.png 0 1 1.0 14 4 2 0.5 1 1          folder, file, number, label, ...
pathfinder32/curv_contour_length_14/imgs/0/sample_0.png
"""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from levelfield.spec import Progress, UserError, no_progress
from levelfield.tasks import _lra_release as archives
from levelfield.tasks._pathfinder.settings import Difficulty

FOLDERS: dict[Difficulty, str] = {
    "easy": "curv_baseline",
    "intermediate": "curv_contour_length_9",
    "hard": "curv_contour_length_14",
}
KNOWN_EMPTY = "pathfinder32/curv_baseline/imgs/0/sample_172.png"  # 0 bytes in the release itself
COMMANDS = {32: "pathfinder_official", 64: "pathfinder64_official", 128: "pathx_official", 256: "pathx256_official"}
RELEASE = archives.RELEASE
METADATA, IMAGES = 200, 200_000  # metadata files of each set, and images that they list
_MEMBER = re.compile(r"metadata/\d+\.npy|imgs/\d+/sample_\d+\.png")
Listed = tuple[Path, int]  # an image's file and its label


def find_release(
    sources: Path | None, size: int, difficulties: Sequence[Difficulty] = ("hard",), progress: Progress = no_progress
) -> Path:
    """Finds the folder `pathfinder<size>`, or unpacks it from the release's archive. Raises UserError without either.

    The release has some folders twice, one inside the other. The outer Pathfinder-128 is damaged (models stay at chance
    on it), so the innermost copy is taken wherever there are several.
    """
    name = f"pathfinder{size}"
    if sources is None:
        raise UserError(
            f"Official Pathfinder images need files: `levelfield data prepare {COMMANDS[size]}` downloads the release "
            f"of Long Range Arena (7.7 GB), or takes '{name}' from a folder that holds it with --from FOLDER."
        )
    if sources.name == name:
        sources = sources.parent
    nests = ("lra_release/lra_release", "lra_release", ".")
    candidates = [sources / nest / inner for nest in nests for inner in (f"{name}/{name}", name)]
    found = [c for c in candidates if c.is_dir()]
    if not found and (archive := archives.find(sources)) is not None:
        for difficulty in difficulties:
            at = archives.unpack(
                archive, f"{name}/{FOLDERS[difficulty]}", lambda n: bool(_MEMBER.fullmatch(n)), progress
            )
            found = [at.parent]
    if not found:
        hint = " (unpack the .tar.xz first)" if any(sources.glob(f"{name}/*.tar*")) else ""
        raise UserError(f"There is no folder '{name}' in {sources}: put or unpack lra_release.gz there{hint}.")
    complete = [c for c in found if any((c / inner).is_dir() for inner in FOLDERS.values())]
    if not complete:
        hint = ": unpack the archive in it" if any(found[0].glob("*.tar*")) else ""
        raise UserError(f"{found[0]} has none of the folders {', '.join(FOLDERS.values())}{hint}.")
    _warn(complete, name)
    return complete[0]


def _warn(complete: list[Path], name: str) -> None:
    if len(complete) > 1:
        warnings.warn(f"{name} is there {len(complete)} times; reading {complete[0]}.", stacklevel=3)
    parents = [p.name for p in list(complete[0].resolve().parents)[:2]]
    if name == "pathfinder128" and parents[0] == "lra_release" != parents[1]:
        warnings.warn(
            f"{complete[0]} may be the release's outer copy of {name}, on which models stay at chance: the good one is "
            "in lra_release/lra_release.",
            stacklevel=3,
        )


def list_images(root: Path, difficulty: Difficulty) -> list[Listed]:
    """Lists every image of one set with its label, in the order of the numbered metadata files. Raises UserError."""
    folder = root / FOLDERS[difficulty]
    metadata = folder / "metadata"
    files = sorted(metadata.glob("[0-9]*.npy"), key=lambda f: (len(f.stem), f.stem))
    if not files:
        raise UserError(f"{metadata} has no .npy files: the {difficulty} set of {root.name} is missing or incomplete.")
    listed: list[Listed] = []
    for file in files:
        rows = _rows(file)
        if not rows:
            raise UserError(f"{file} is empty, where a line for every image is expected: unpack the release again.")
        for line, fields in enumerate(rows, start=1):
            if len(fields) < 4 or fields[3] not in ("0", "1"):
                raise UserError(f"{file}, line {line}: expected 'folder file number label ...' with label 0 or 1.")
            listed.append((folder / fields[0] / fields[1], int(fields[3])))
    if (len(files), len(listed)) != (METADATA, IMAGES):
        warnings.warn(
            f"{root.name}/{folder.name} is only a part of the official release: {len(listed):,} images in "
            f"{len(files)} metadata files, where there should be {IMAGES:,} in {METADATA}.",
            stacklevel=2,
        )
    return _without_empty(listed, root)


def _rows(file: Path) -> list[list[str]]:
    """Reads the fields of each line. The release has text; the generator itself writes a NumPy array of strings."""
    data = file.read_bytes()
    try:
        if data.startswith(b"\x93NUMPY"):
            return np.load(io.BytesIO(data), allow_pickle=False).astype(str).tolist()
        return [
            line.split() for line in data.removeprefix(b"\xef\xbb\xbf").decode("ascii").splitlines() if line.strip()
        ]
    except ValueError as error:
        raise UserError(f"{file} is neither text nor a NumPy array of strings: unpack the release again.") from error


def _without_empty(listed: list[Listed], root: Path) -> list[Listed]:
    kept = []
    for path, label in listed:
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            raise UserError(f"{path} is listed in the metadata but missing: unpack {root.name} again.")
        if size:
            kept.append((path, label))
        elif path.as_posix().endswith(KNOWN_EMPTY):
            warnings.warn(f"Left out {KNOWN_EMPTY}, which is empty in the release itself.", stacklevel=2)
        else:
            raise UserError(f"{path} is empty: unpack {root.name} again.")
    return kept


def read_images(listed: list[Listed], into: np.ndarray, what: str, progress: Progress = no_progress) -> np.ndarray:
    """Reads images into `into`, (n, size * size) uint8, and returns their labels, (n,) int64. Raises UserError."""
    block = 256

    def work(first: int) -> int:
        for at, (path, _) in enumerate(listed[first : first + block], start=first):
            into[at] = _pixels(path, into.shape[1])
        return min(block, len(listed) - first)

    done = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for count in pool.map(work, range(0, len(listed), block)):
            done += count
            progress(f"reading {what}", done, len(listed))
    return np.array([label for _, label in listed], np.int64)


def _pixels(path: Path, length: int) -> np.ndarray:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            pixels = np.asarray(image if image.mode == "L" else image.convert("L"))
    except (UnidentifiedImageError, OSError) as error:
        raise UserError(f"{path} cannot be read as an image: unpack the release again.") from error
    if pixels.size != length or pixels.shape[0] != pixels.shape[1]:
        raise UserError(f"{path} has {pixels.shape[1]} x {pixels.shape[0]} pixels, not {length} in all.")
    return pixels.reshape(-1)
