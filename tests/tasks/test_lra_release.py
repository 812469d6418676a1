"""The release of the Long Range Arena is read out of its one archive, as it is laid out and when it is damaged."""

from __future__ import annotations

import io
import tarfile
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from PIL import Image
from test_listops_files import SMALL
from test_listops_files import write as write_listops
from test_pathfinder_files import make_set

from levelfield.spec import SPLITS, Examples, UserError
from levelfield.tasks import _lra_release as release
from levelfield.tasks.pathfinder import Pathfinder

PICTURES = Pathfinder(origin="official")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The folder `lra_release` as the archive has it, with other files in the outer copies."""
    inner = tmp_path / "made" / "lra_release" / "lra_release"
    for place in (inner, inner.parent):
        (place / "listops-1000").mkdir(parents=True)
    write_listops(inner / "listops-1000")
    (inner.parent / "listops-1000" / "basic_train.tsv").write_text("not this one")
    for difficulty in ("hard", "easy"):
        make_set(inner / "pathfinder32", difficulty)
    outer = inner.parent / "pathfinder32" / "curv_contour_length_14" / "imgs" / "9"
    outer.mkdir(parents=True)
    (outer / "sample_0.png").write_bytes(b"not this one")
    (inner / "pathfinder32" / "curv_contour_length_14" / "LICENSE.txt").write_text("of no use")
    return tmp_path / "made"


def pack(tree: Path, into: Path, name: str = "lra_release.gz") -> Path:
    into.mkdir()
    with tarfile.open(into / name, "w" if name.endswith(".tar") else "w:gz") as tar:
        tar.add(tree / "lra_release", "lra_release")
    return into / name


def same(a: Examples, b: Examples) -> bool:
    return np.array_equal(a.x, b.x) and np.array_equal(a.y, b.y) and np.array_equal(a.offsets, b.offsets)


@pytest.mark.parametrize("name", release.NAMES)
def test_listops_is_read_out_of_the_archive(tree: Path, tmp_path: Path, name: str) -> None:
    archive = pack(tree, tmp_path / "packed", name)
    expected = SMALL.build(tree / "lra_release" / "lra_release" / "listops-1000")
    for sources in (archive, archive.parent):
        splits = SMALL.build(sources)
        assert all(same(splits[s], expected[s]) for s in SPLITS)
    assert [p.name for p in archive.parent.iterdir()] == [name], "nothing is unpacked"


def test_pathfinder_is_unpacked_beside_the_archive_once(tree: Path, tmp_path: Path) -> None:
    archive = pack(tree, tmp_path / "packed")
    expected = PICTURES.build(tree / "lra_release" / "lra_release")
    first = PICTURES.build(archive.parent)
    assert all(same(first[s], expected[s]) for s in SPLITS)
    folder = archive.parent / release.UNPACKED / "pathfinder32"
    assert [p.name for p in folder.iterdir()] == ["curv_contour_length_14"], "the easy set was not asked for"
    assert {p.suffix for p in folder.rglob("*.*")} == {".png", ".npy"}
    archive.write_bytes(b"no longer read")
    assert same(PICTURES.build(archive.parent)["test"], expected["test"])


def test_two_at_once_unpack_it_once(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = pack(tree, tmp_path / "packed")
    passes, read = [], release.members

    def members(*arguments: Any) -> Iterator[tuple[str, IO[bytes]]]:
        passes.append(arguments)
        for member in read(*arguments):
            time.sleep(0.001)
            yield member

    monkeypatch.setattr(release, "members", members)
    folder = "pathfinder32/curv_contour_length_14"
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: release.unpack(archive, folder, lambda name: name.endswith(".png")), range(2)))
    there = tree / "lra_release" / "lra_release" / folder
    whole = {str(p.relative_to(there)): p.read_bytes() for p in there.rglob("*.png")}
    assert len(passes) == 1 and found[0] == found[1]
    assert {str(p.relative_to(found[0])): p.read_bytes() for p in found[0].rglob("*.png")} == whole
    assert [p.name for p in found[0].parent.iterdir()] == ["curv_contour_length_14"]


@pytest.mark.parametrize("name", ["basic_train.tsv", "basic_train.tsv.xz"])
def test_a_table_named_by_itself_is_not_called_damaged(tmp_path: Path, name: str) -> None:
    write_listops(tmp_path, compress=name.endswith(".xz"))
    with pytest.raises(UserError, match=rf"{name} is one table and no archive: name the folder that holds it"):
        SMALL.build(tmp_path / name)


def test_a_set_that_is_not_in_the_release_is_told(tree: Path, tmp_path: Path) -> None:
    archive = pack(tree, tmp_path / "packed")
    with pytest.raises(UserError, match=r"has no lra_release/lra_release/pathfinder32/curv_contour_length_9: download"):
        replace(PICTURES, sets="three").build(archive.parent)
    with pytest.raises(UserError, match=r"has no lra_release/lra_release/pathfinder128/curv_contour_length_14"):
        replace(PICTURES, size=128).build(archive.parent)
    assert not list(archive.parent.rglob(".*"))


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_a_truncated_archive_is_one_sentence_and_leaves_nothing(tree: Path, tmp_path: Path, share: float) -> None:
    archive = pack(tree, tmp_path / "packed")
    archive.write_bytes(archive.read_bytes()[: int(share * archive.stat().st_size)])
    with pytest.raises(UserError, match=r"lra_release.gz is truncated or damaged .*: download .* again"):
        PICTURES.build(archive.parent)
    assert not list(archive.parent.rglob("*.png"))


@pytest.mark.parametrize("name", ["listops-1000/basic_train.tsv", "pathfinder32/curv_contour_length_14/imgs/0/a.png"])
def test_an_archive_that_ends_inside_a_file_is_one_sentence(tmp_path: Path, name: str) -> None:
    """Whoever reads the file's content meets the end, and not who looks for the next file."""
    digits = np.random.default_rng(0).integers(48, 58, 1_000_000, np.uint8)
    noise = b"Source\tTarget\n[MAX " + np.insert(digits, slice(1, None), ord(" ")).tobytes()
    with tarfile.open(tmp_path / "lra_release.gz", "w:gz", compresslevel=1) as archive:
        member = tarfile.TarInfo(f"lra_release/lra_release/{name}")
        member.size = len(noise)
        archive.addfile(member, io.BytesIO(noise))
    path = tmp_path / "lra_release.gz"
    path.write_bytes(path.read_bytes()[:500_000])
    with pytest.raises(UserError, match=r"lra_release\.gz.* damaged"):
        (SMALL if "listops" in name else PICTURES).build(tmp_path)


def test_what_is_no_archive_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "lra_release.gz").write_bytes(b"<html>no such bucket</html>" * 100)
    for task in (SMALL, PICTURES):
        with pytest.raises(UserError, match="truncated or damaged"):
            task.build(tmp_path)


@pytest.mark.parametrize(
    "name", ["../evil.png", "/evil.png", "lra_release/lra_release/pathfinder32/curv_contour_length_14/../../../../evil"]
)
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "packed"
    folder.mkdir()
    with tarfile.open(folder / "lra_release.gz", "w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.size = 4
        tar.addfile(member, io.BytesIO(b"evil"))
    with pytest.raises(UserError, match="outside its folder"):
        PICTURES.build(folder)
    assert not list(tmp_path.rglob("evil*"))


def test_a_folder_that_cannot_be_written_is_told(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = pack(tree, tmp_path / "packed")

    def full(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"Cannot unpack .* \(No space left on device\): free some space"):
        PICTURES.build(archive.parent)


def test_the_outer_copy_of_path_x_is_told_by_name(tmp_path: Path) -> None:
    """Also where it is the only one; the good one is read in silence."""
    for place, told in (("lra_release/pathfinder128", True), ("lra_release/lra_release/pathfinder128", False)):
        folder = tmp_path / str(told) / place / "curv_contour_length_14"
        (folder / "metadata").mkdir(parents=True)
        (folder / "imgs" / "0").mkdir(parents=True)
        rows = []
        for k in range(20):
            Image.fromarray(np.full((128, 128), k, np.uint8)).save(folder / "imgs" / "0" / f"sample_{k}.png")
            rows.append(f"imgs/0 sample_{k}.png {k} {k % 2} 1.0 14 4 2 0.5 1 1\n")
        (folder / "metadata" / "0.npy").write_text("".join(rows))
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            replace(PICTURES, size=128).build(tmp_path / str(told))
        assert ["outer copy" in str(w.message) for w in heard if "only a part" not in str(w.message)] == [True] * told


def test_rows_without_brackets_are_told_by_name(tmp_path: Path) -> None:
    write_listops(tmp_path, train=["Source\tTarget", "[MAX 2 [MIN 4 7\t4"])
    with pytest.raises(UserError, match=r"line 2 .* has no closing bracket, as some tokenisers drop them"):
        replace(SMALL, train=1).build(tmp_path)
