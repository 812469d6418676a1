"""The official Pathfinder folders: what is read, how it is split, and what is said of damaged ones."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from levelfield.spec import SPLITS, UserError
from levelfield.tasks._pathfinder import release as _pathfinder_release
from levelfield.tasks._pathfinder.draw import draw, seeds
from levelfield.tasks._pathfinder.release import FOLDERS, find_release, list_images
from levelfield.tasks._pathfinder.settings import Difficulty, parameters
from levelfield.tasks.pathfinder import Pathfinder

OFFICIAL = Pathfinder(origin="official")
COUNT = 40


def make_set(root: Path, difficulty: Difficulty, count: int = COUNT) -> np.ndarray:
    """A set in the release's layout, in two metadata files of which the second is numbered 10; returns the labels."""
    d = draw(parameters(32, difficulty), seeds(5, f"release {difficulty}", count))
    folder = root / FOLDERS[difficulty]
    (folder / "metadata").mkdir(parents=True)
    for number, rows in ((9, range(count // 2)), (10, range(count // 2, count))):
        images = folder / "imgs" / str(number)
        images.mkdir(parents=True)
        lines = []
        for k, i in enumerate(rows):
            Image.fromarray(d.images[i].reshape(32, 32)).save(images / f"sample_{k}.png")
            lines.append(f"imgs/{number} sample_{k}.png {k} {d.labels[i]} 1.0 14 4 2 0.5 1 1\n")
        (folder / "metadata" / f"{number}.npy").write_text("".join(lines))
    return d.labels


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder that holds a small pathfinder32 with all three sets."""
    for difficulty in FOLDERS:
        make_set(tmp_path / "pathfinder32", difficulty)
    return tmp_path


def test_images_and_labels_are_those_of_the_files(tmp_path: Path) -> None:
    labels = make_set(tmp_path / "pathfinder32", "hard")
    listed = list_images(tmp_path / "pathfinder32", "hard")
    assert [label for _, label in listed] == labels.tolist()
    assert listed[0][0].parent.name == "9" and listed[-1][0].parent.name == "10", "9 comes before 10"
    splits = OFFICIAL.build(tmp_path)
    read = {splits[s].sequence(i).tobytes(): splits[s].y[i] for s in SPLITS for i in range(len(splits[s]))}
    drawn = draw(parameters(32, "hard"), seeds(5, "release hard", COUNT)).images
    assert read == {image.tobytes(): label for image, label in zip(drawn, labels, strict=True)}


def test_a_tenth_validates_a_tenth_tests_and_the_seed_chooses(release: Path) -> None:
    one, other = OFFICIAL.build(release), replace(OFFICIAL, seed=1).build(release)
    assert [len(one[s]) for s in SPLITS] == [32, 4, 4]
    assert not np.array_equal(one["test"].x, other["test"].x)
    few = replace(OFFICIAL, train=5, val=2, test=1).build(release)
    assert [len(few[s]) for s in SPLITS] == [5, 2, 1]
    assert np.array_equal(few["train"].x, one["train"].x[: 5 * 1024]), "a limit takes the first of the same split"


def test_three_sets_share_no_image_with_the_hard_test(release: Path) -> None:
    hard, three = OFFICIAL.build(release), replace(OFFICIAL, sets="three").build(release)
    assert three["train"].slices["difficulty"].tolist() == ["easy"] * 32 + ["intermediate"] * 32 + ["hard"] * 32
    assert np.array_equal(three["test"].x, hard["test"].x) and np.array_equal(three["val"].x, hard["val"].x)
    assert set(three["test"].slices) == {"difficulty", "contour"}


def test_the_generators_own_metadata_is_read_too(release: Path) -> None:
    """It writes a NumPy array of strings where the release has text."""
    before = OFFICIAL.build(release)
    for file in release.glob("pathfinder32/*/metadata/*.npy"):
        rows = np.array([line.split() for line in file.read_text().splitlines()])
        buffer = io.BytesIO()
        np.save(buffer, rows)
        file.write_bytes(buffer.getvalue())
    assert np.array_equal(OFFICIAL.build(release)["train"].x, before["train"].x)


def test_files_that_macos_hides_are_no_metadata(release: Path) -> None:
    before = OFFICIAL.build(release)
    _metadata(release).with_name("._9.npy").write_bytes(b"\0\5\x16\7")
    assert np.array_equal(OFFICIAL.build(release)["train"].x, before["train"].x)


def test_only_a_part_of_the_release_is_told(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = r"pathfinder32/curv_contour_length_14 is only a part .* 40 images in 2 metadata files, .* 200,000 in 200"
    with pytest.warns(UserWarning, match=told):
        OFFICIAL.build(release)
    monkeypatch.setattr(_pathfinder_release, "METADATA", 2)
    monkeypatch.setattr(_pathfinder_release, "IMAGES", COUNT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OFFICIAL.build(release)


def test_nothing_is_unpickled(release: Path) -> None:
    file = next(release.glob("pathfinder32/curv_contour_length_14/metadata/9.npy"))
    np.save(file, np.array([["imgs/9", object]], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="neither text nor"):
        OFFICIAL.build(release)


def test_the_known_empty_image_is_left_out_with_a_warning(release: Path) -> None:
    """`sample_172.png` of the easy set is empty in the release itself."""
    folder = release / "pathfinder32" / "curv_baseline"
    (folder / "imgs" / "0").mkdir()
    (folder / "imgs" / "0" / "sample_172.png").touch()
    (folder / "metadata" / "0.npy").write_text("imgs/0 sample_172.png 172 1 1.0 6 2 2 0.5 1 1\n")
    with pytest.warns(UserWarning, match=r"sample_172\.png"):
        listed = list_images(release / "pathfinder32", "easy")
    assert len(listed) == COUNT


@pytest.mark.parametrize("nest", ["", "lra_release", "lra_release/lra_release"])
def test_the_folder_is_found_where_the_archive_leaves_it(nest: str, tmp_path: Path) -> None:
    make_set(tmp_path / nest / "pathfinder32", "hard")
    assert find_release(tmp_path, 32) == tmp_path / nest / "pathfinder32"


def test_of_two_copies_the_inner_one_is_read(tmp_path: Path) -> None:
    """The outer Pathfinder-128 of the release is damaged."""
    for nest in ("lra_release", "lra_release/lra_release"):
        make_set(tmp_path / nest / "pathfinder128", "hard", count=2)
    with pytest.warns(UserWarning, match="2 times"):
        assert find_release(tmp_path, 128) == tmp_path / "lra_release/lra_release/pathfinder128"


def test_the_folder_itself_may_be_given(release: Path) -> None:
    assert find_release(release / "pathfinder32", 32) == release / "pathfinder32"


def _first_image(root: Path) -> Path:
    return root / "pathfinder32/curv_contour_length_14/imgs/9/sample_0.png"


def _metadata(root: Path) -> Path:
    return root / "pathfinder32/curv_contour_length_14/metadata/9.npy"


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda root: _first_image(root).unlink(), "missing: unpack"),
        (lambda root: _first_image(root).write_bytes(b""), "is empty"),
        (lambda root: _first_image(root).write_bytes(b"no png"), "cannot be read as an image"),
        (lambda root: Image.new("L", (64, 64)).save(_first_image(root)), "64 x 64 pixels"),
        (lambda root: _metadata(root).write_text("imgs/9 sample_0.png 0 2 1.0\n"), "line 1"),
        (lambda root: _metadata(root).write_bytes(b"\xff\xfe"), "neither text nor"),
        (lambda root: _metadata(root).write_bytes(b""), r"9\.npy is empty"),
        (lambda root: [f.unlink() for f in _metadata(root).parent.iterdir()], "missing or incomplete"),
    ],
)
def test_damage_is_told_in_one_sentence(damage: Callable[[Path], object], told: str, release: Path) -> None:
    damage(release)
    with pytest.raises(UserError, match=told) as caught:
        OFFICIAL.build(release)
    assert "\n" not in str(caught.value)


def test_missing_folders_are_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--from"):
        OFFICIAL.build(None)
    with pytest.raises(UserError, match=r"unpack lra_release\.gz"):
        OFFICIAL.build(tmp_path)
    (tmp_path / "pathfinder32").mkdir()
    (tmp_path / "pathfinder32" / "pathfinder32.tar.xz").touch()
    with pytest.raises(UserError, match="unpack the archive in it"):
        OFFICIAL.build(tmp_path)


def test_progress_is_told(release: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    OFFICIAL.build(release, lambda what, done, total: heard.append((what, done, total)))
    assert [(done, total) for _, done, total in heard] == [(32, 32), (4, 4), (4, 4)]


@pytest.mark.data
def test_the_reference_images_are_read_whole(test_data: Path, tmp_path: Path) -> None:
    """400 + 400 hard images and 100 easy ones; 403 hard ones are connected, as their README says."""
    import tarfile

    with tarfile.open(test_data / "pathfinder32" / "pathfinder32.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".* only a part of the official")
        splits = OFFICIAL.build(tmp_path)
        easy = replace(OFFICIAL, difficulty="easy").build(tmp_path)
    assert [len(splits[s]) for s in SPLITS] == [640, 80, 80] and sum(len(easy[s]) for s in SPLITS) == 100
    assert sum(int(splits[s].y.sum()) for s in SPLITS) == 403
    assert all(splits[s].x.max() == 255 and splits[s].x.min() == 0 for s in SPLITS)
