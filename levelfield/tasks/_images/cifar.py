"""Reads CIFAR-10 from any of its formats, and makes the validation split that the papers use.

    splits(Path("downloads"), task="image", train=50_000, test=10_000, convert=to_gray)

The path is a folder with `cifar-10-python.tar.gz`, `cifar-10-binary.tar.gz`, either of them without .gz or unpacked,
parquet files from a data hub, or one .npz; or it is the archive or .npz itself. Pictures keep the order of the official
files. In every format, each whole block of 10,000 pictures is compared with the MD5 of the official binary batch, so a
lossy, reordered or damaged copy is refused. Nothing in a file is executed: `safe_unpickle.py` reads the pickled
batches.
"""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from levelfield.spec import Archive, Examples, Progress, SplitName, UserError
from levelfield.tasks._images.safe_unpickle import unpickle_batch

PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
SOURCE = (
    "CIFAR-10: Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images, technical report. "
    f"Licence: none is stated on {PAGE}, which asks to cite the report."
)
LICENCE = f"none is stated on {PAGE}"
SPLIT_RULE = (
    "test: the official test batch. train and val: the official train batches in file order, permuted by "
    "torch.randperm with a generator seeded 42; the first nine tenths (45,000) are train, the rest (5,000) val. These "
    "are the indices of torch's random_split with that generator, as in the code of amos2025."
)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32
PIXELS = SIDE * SIDE
TRAIN, TEST, BLOCK = 50_000, 10_000, 10_000
OFFICIAL_TRAIN = (
    "5dd7e06a14cb22eb9f671a540d1b7c25",
    "5ea93a67294ea407fff1d09f752e9692",
    "942cd6a4bcdd0dd3c604fbe906cb4421",
    "ae636b3ba5c66a11e91e8cb52e771fcb",
    "53f37980c15c3d472c316c40844f3f0d",
)
OFFICIAL_TEST = ("803d5f7f4d78ea53de84dbe85f74fb6d",)
ARCHIVES = ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz", "cifar-10-python.tar", "cifar-10-binary.tar")
OFFICIAL = (
    Archive(  # the MD5 is the one on its page
        ARCHIVES[0],
        ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
        sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        md5="c58f30108f718f92721af3b95e74349a",
        bytes=170_498_071,
    ),
)
PLACES = (
    ".",
    "cifar-10-batches-py",
    "cifar-10-batches-bin",
    "plain_text",
    "cifar10",
)  # subfolders in which copies keep the files
TRAIN_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST_BATCHES = ("test_batch",)
LARGEST_MEMBER = 64 * 2**20  # bytes; an official batch has 31 MB


@dataclass(frozen=True)
class Pictures:
    """Pictures with their labels. pixels: (N, 1024, 3) uint8 RGB, row after row. labels: (N,) int64 in 0..9."""

    pixels: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> Pictures:
        return Pictures(self.pixels[:count], self.labels[:count])

    def records(self) -> bytes:
        """Encodes pictures as the official binary files do: a label byte, then 1024 red, green and blue values each."""
        planes = self.pixels.transpose(0, 2, 1).reshape(len(self), 3 * PIXELS)
        return np.concatenate([self.labels[:, None].astype(np.uint8), planes], axis=1).tobytes()


Fetch = Callable[[str], bytes | None]
"""fetch(base name): the bytes of that file; None where there is none."""


def splits(
    sources: Path | None,
    *,
    task: str,
    train: int,
    test: int,
    convert: Callable[[np.ndarray], np.ndarray],
    progress: Progress,
) -> Mapping[SplitName, Examples]:
    """Returns train, val and test from the first `train` and `test` official pictures.

    convert: turns pixels (N, 1024, 3) uint8 into the task's input. Raises UserError where files are missing, damaged,
    too few or not CIFAR-10.
    """
    if sources is None:
        raise UserError(
            f"Task {task} needs CIFAR-10: `levelfield data prepare {task}` downloads it from {PAGE} (170 MB), or takes "
            "it from a folder that holds any of its forms with --from FOLDER."
        )
    part = "" if (train, test) == (TRAIN, TEST) else f" (a part: {train:,} of {TRAIN:,} train pictures)"
    learn, held = read(sources, train, test, lambda what, done, total: progress(what + part, done, total))
    keep, val = carve(train)
    return {
        "train": _examples(learn, keep, convert),
        "val": _examples(learn, val, convert),
        "test": _examples(held, np.arange(test), convert),
    }


def carve(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices of train and val among `count` official train pictures, by SPLIT_RULE."""
    import torch

    order = torch.randperm(count, generator=torch.Generator().manual_seed(42)).numpy()
    return order[: count - count // 10], order[count - count // 10 :]


def check_counts(train: int, test: int) -> None:
    """Raises UserError for a subset that CIFAR-10 does not have."""
    if not 10 <= train <= TRAIN or not 1 <= test <= TEST:
        raise UserError(f"CIFAR-10 offers train=10 to {TRAIN} and test=1 to {TEST}, not train={train}, test={test}.")


def read(sources: Path, train: int, test: int, progress: Progress) -> tuple[Pictures, Pictures]:
    """Reads and verifies the first `train` train and `test` test pictures, in official order. Raises UserError."""
    wanted: dict[str, tuple[int, Sequence[str]]] = {"train": (train, OFFICIAL_TRAIN), "test": (test, OFFICIAL_TEST)}
    reader = _reader(sources, progress)
    found = []
    for split, (count, official) in wanted.items():
        pictures = reader(split, count).first(count)
        _check(pictures, split, count, official, sources)
        found.append(pictures)
    return found[0], found[1]


def _examples(pictures: Pictures, rows: np.ndarray, convert: Callable[[np.ndarray], np.ndarray]) -> Examples:
    labels = pictures.labels[rows]
    return Examples.of_equal_length(convert(pictures.pixels[rows]), labels, {"class": np.array(CLASSES)[labels]})


def _check(pictures: Pictures, split: str, count: int, official: Sequence[str], sources: Path) -> None:
    if len(pictures) < count:
        full = TRAIN if split == "train" else TEST
        raise UserError(
            f"{sources} holds {len(pictures):,} of {full:,} {split} pictures, but {count:,} are asked for: get the "
            f"full set from {PAGE}, or work on a part of CIFAR-10 with {split}={len(pictures)}, or by the names "
            "image_15k and scifar_15k with the first 15,000."
        )
    if not 0 <= pictures.labels.min() <= pictures.labels.max() < len(CLASSES):
        raise UserError(f"{sources} has a {split} label outside 0..9: it is not CIFAR-10; get the set from {PAGE}.")
    for i, expected in enumerate(official[: count // BLOCK]):
        block = Pictures(*(a[i * BLOCK : (i + 1) * BLOCK] for a in (pictures.pixels, pictures.labels)))
        if hashlib.md5(block.records(), usedforsecurity=False).hexdigest() != expected:
            raise UserError(
                f"{sources}: {split} pictures {i * BLOCK:,} to {(i + 1) * BLOCK - 1:,} are not those of CIFAR-10, so "
                f"this copy is damaged, lossy or reordered: get the official archive from {PAGE}."
            )


Reader = Callable[[str, int], Pictures]
"""reader(split, count): at least `count` pictures of "train" or "test" where the source has them."""


def _reader(sources: Path, progress: Progress) -> Reader:
    """Returns the reader for the format of `sources`. Raises UserError where there is none."""
    if not sources.exists():
        raise UserError(f"{sources} does not exist: name the folder that holds the CIFAR-10 files from {PAGE}.")
    if sources.is_file():
        return _npz(sources) if sources.suffix == ".npz" else _batches(_archive(sources, progress), sources, progress)
    for folder in (sources / place for place in PLACES):
        for name in ARCHIVES:
            if (folder / name).exists():
                return _batches(_archive(folder / name, progress), folder / name, progress)
        if any(folder.glob("data_batch_*")):
            return _batches(_folder(folder), folder, progress)
        if any(folder.glob("*.parquet")):
            return _parquet(folder, progress)
        if found := sorted(folder.glob("*.npz")):
            return _npz(found[0])
    if any(sources.glob("train/*/*.jp*g")):
        raise UserError(f"{sources} holds JPEG pictures, whose pixels differ from CIFAR-10's: get the set from {PAGE}.")
    raise UserError(f"{sources} holds no CIFAR-10 files: put {ARCHIVES[0]} or {ARCHIVES[1]} from {PAGE} there.")


# Official batches, packed or unpacked.


def _archive(path: Path, progress: Progress) -> Fetch:
    """Reads the batches of a .tar.gz or .tar in one pass, without writing to disk."""
    wanted = [name + ending for name in (*TRAIN_BATCHES, *TEST_BATCHES) for ending in ("", ".bin")]
    held: dict[str, bytes] = {}
    try:
        with _opened(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                name = Path(member.name).name
                if name in wanted and member.isfile() and member.size <= LARGEST_MEMBER:
                    file = archive.extractfile(member)
                    held[name] = file.read() if file else b""
                    progress(f"unpacking {path.name}", len(held), 6)
            while stream.read(2**20):  # up to the checksum of the archive, which is beyond what tarfile reads
                pass
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UserError(f"{path} is truncated or damaged ({error}): download it again from {PAGE}.") from error
    return held.get


def _opened(path: Path) -> gzip.GzipFile | BinaryIO:
    """Opens a .tar.gz or .tar. Raises UserError for a file that is neither."""
    with path.open("rb") as file:
        start = file.read(512)
    if start.startswith(b"\x1f\x8b"):
        return gzip.open(path)
    try:
        tarfile.TarInfo.frombuf(start, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        raise UserError(
            f"{path} is not an archive: name {ARCHIVES[0]} or {ARCHIVES[1]} from {PAGE}, or the folder that holds the "
            "batches."
        )
    return path.open("rb")


def _folder(folder: Path) -> Fetch:
    def fetch(name: str) -> bytes | None:
        path = folder / name
        return path.read_bytes() if path.is_file() else None

    return fetch


def _batches(fetch: Fetch, where: Path, progress: Progress) -> Reader:
    """Returns a reader of `data_batch_1` to 5 and `test_batch`, pickles, or binary records if the names end in .bin."""
    binary = fetch("data_batch_1.bin") is not None
    ending, decode = (".bin", _binary) if binary else ("", _pickled)

    def reader(split: str, count: int) -> Pictures:
        names = TRAIN_BATCHES if split == "train" else TEST_BATCHES
        parts: list[Pictures] = []
        for name in names:
            if sum(map(len, parts)) >= count:
                break
            data = fetch(name + ending)
            if data is None:
                raise UserError(f"{where} has no {name}{ending}: unpack or download the official archive from {PAGE}.")
            parts.append(decode(data, f"{name}{ending} in {where}"))
            progress(f"reading {name}", len(parts), len(names))
        return Pictures(np.concatenate([p.pixels for p in parts]), np.concatenate([p.labels for p in parts]))

    return reader


def _binary(data: bytes, what: str) -> Pictures:
    if not data or len(data) % (3 * PIXELS + 1):
        raise UserError(f"{what} is truncated ({len(data):,} bytes, not a multiple of 3,073): download it from {PAGE}.")
    records = np.frombuffer(data, np.uint8).reshape(-1, 3 * PIXELS + 1)
    return _planar(records[:, 1:], records[:, 0])


def _pickled(data: bytes, what: str) -> Pictures:
    planes, labels = unpickle_batch(data, what)
    if planes.ndim != 2 or planes.shape != (len(labels), 3 * PIXELS):
        raise UserError(f"{what} holds {planes.shape} values for {len(labels):,} labels: download it from {PAGE}.")
    return _planar(planes, labels)


def _planar(planes: np.ndarray, labels: np.ndarray) -> Pictures:
    """Converts planes (N, 3072), red then green then blue, to pictures."""
    pixels = planes.reshape(-1, 3, PIXELS).transpose(0, 2, 1)
    return Pictures(np.ascontiguousarray(pixels), labels.astype(np.int64))


# Copies made by others.


def _npz(path: Path) -> Reader:
    """Returns a reader of the arrays x_train (N, 32, 32, 3) uint8, y_train (N,) or (N, 1), x_test and y_test."""

    def reader(split: str, count: int) -> Pictures:
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                pixels, labels = arrays[f"x_{split}"], arrays[f"y_{split}"].reshape(-1)
        except KeyError as error:
            raise UserError(f"{path} lacks an array: it needs x_train, y_train, x_test and y_test.") from error
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(f"{path} is truncated or damaged ({error}): make or download it again.") from error
        if pixels.shape[1:] != (SIDE, SIDE, 3) or pixels.dtype != np.uint8 or len(pixels) != len(labels):
            raise UserError(f"{path}: x_{split} must be (N, 32, 32, 3) uint8 with N labels, not {pixels.shape}.")
        return Pictures(pixels.reshape(-1, PIXELS, 3), labels.astype(np.int64))

    return reader


def _parquet(folder: Path, progress: Progress) -> Reader:
    """Returns a reader of columns `img` or `image` and `label` or `labels`.

    A picture is the bytes of a lossless PNG or WebP, or a struct that contains them.
    """

    def reader(split: str, count: int) -> Pictures:
        files = sorted(folder.glob(f"{split}*.parquet"))
        if not files:
            raise UserError(f"{folder} has no {split}-*.parquet: a copy of CIFAR-10 has train and test files.")
        pixels, labels = np.empty((count, PIXELS, 3), np.uint8), np.empty(count, np.int64)
        done = 0
        for picture, label in _rows(files, count):
            pixels[done], labels[done] = _decode(picture, f"row {done} of {split} in {folder}"), label
            done += 1
            if done % 1000 == 0:
                progress(f"decoding {split} pictures", done, count)
        return Pictures(pixels[:done], labels[:done])

    return reader


def _rows(files: Sequence[Path], count: int) -> Iterator[tuple[bytes, int]]:
    import duckdb

    names = [str(f) for f in files]
    try:
        with duckdb.connect() as database:
            described = database.execute("DESCRIBE SELECT * FROM read_parquet(?)", [names]).fetchall()
            kinds = {row[0]: str(row[1]) for row in described}
            picture = next((name for name in ("img", "image") if name in kinds), None)
            label = next((name for name in ("label", "labels") if name in kinds), None)
            if picture is None or label is None:
                raise UserError(f"{files[0]} has columns {', '.join(kinds)}: it needs img (or image) and label.")
            picture = f'"{picture}".bytes' if kinds[picture].startswith("STRUCT") else f'"{picture}"'
            cursor = database.execute(f'SELECT {picture}, "{label}" FROM read_parquet(?) LIMIT {count:d}', [names])
            while rows := cursor.fetchmany(500):
                yield from rows
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{files[0].parent} has a damaged parquet file ({reason}): download it again.") from error


def _decode(data: object, what: str) -> np.ndarray:
    """Decodes one picture: (1024, 3) uint8. Raises UserError for another size and for JPEG, which is lossy."""
    from PIL import Image, UnidentifiedImageError

    if not isinstance(data, bytes):
        raise UserError(f"{what} holds no picture bytes: a copy of CIFAR-10 keeps PNG or WebP files in its rows.")
    try:
        with Image.open(BytesIO(data), formats=("PNG", "WEBP", "JPEG")) as picture:
            kind, pixels = picture.format, np.asarray(picture)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise UserError(
            f"{what} is not a readable picture ({type(error).__name__}): download the file again."
        ) from error
    if kind == "JPEG":
        raise UserError(f"{what} is a JPEG, whose pixels differ from CIFAR-10's: get the set from {PAGE}.")
    if pixels.shape != (SIDE, SIDE, 3):
        raise UserError(f"{what} has shape {pixels.shape} instead of (32, 32, 3): it is not CIFAR-10.")
    return pixels.reshape(PIXELS, 3)
