"""Image and SCifar: the files of CIFAR-10 in every form, intact and damaged, and what the tasks make of them."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import fixtures_cifar as tiny
import numpy as np
import pytest
import torch
from PIL import Image as PillowImage

from levelfield.data.batches import encode
from levelfield.data.prepared import load, prepare
from levelfield.spec import Examples, Signal, SplitName, Tokens, UserError, digest
from levelfield.tasks._images.augment import DRAWS, policy
from levelfield.tasks._images.cifar import Pictures, carve
from levelfield.tasks.image import Image, luma
from levelfield.tasks.scifar import SCifar

COLOUR = SCifar(train=100, test=40)
GRAY = Image(train=100, test=40)


def sentence(call: pytest.ExceptionInfo[UserError]) -> str:
    """The message, once it is known to be one sentence."""
    text = str(call.value)
    assert text.endswith(".") and "\n" not in text and not re.search(r"[.!?]\s+[A-Z]", text), text
    return text


def rebuilt(splits: Mapping[SplitName, Examples]) -> tuple[np.ndarray, np.ndarray]:
    """Train and val put back into the order of the files: pixels (N, 32, 32, 3) and labels (N,)."""
    parts = splits["train"], splits["val"]
    order = np.concatenate(carve(sum(map(len, parts))))
    pixels = np.concatenate([part.x.reshape(-1, 32, 32, 3) for part in parts])
    labels = np.concatenate([part.y for part in parts])
    back = np.argsort(order)
    return pixels[back], labels[back]


@pytest.mark.parametrize("form", tiny.FORMS)
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_every_form_gives_the_pictures_that_were_written(tmp_path: Path, form: tiny.Form, packed: bool) -> None:
    sources = tiny.write(tmp_path / "cifar", form)
    if packed and form in ("python", "binary"):
        archive = tiny.pack(sources, form)
        sources = archive.rename(tmp_path / archive.name)
    elif packed and form == "npz":
        sources = sources / "cifar10.npz"
    splits = COLOUR.build(sources)
    pixels, labels = rebuilt(splits)
    for (x, y), (want_x, want_y) in zip(
        [(pixels, labels), (splits["test"].x.reshape(-1, 32, 32, 3), splits["test"].y)],
        [tiny.pictures(100, seed=0), tiny.pictures(40, seed=1)],
    ):
        assert np.array_equal(x, want_x)
        assert np.array_equal(y, want_y)
    assert {s: len(e) for s, e in splits.items()} == {"train": 90, "val": 10, "test": 40}


def test_a_folder_with_the_archive_or_the_bare_batches_is_found(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path, "binary")
    bare = COLOUR.build(folder / "cifar-10-batches-bin")
    tiny.pack(folder, "binary")
    packed = COLOUR.build(folder)
    assert np.array_equal(bare["test"].x, packed["test"].x)
    above = COLOUR.build(tiny.write(tmp_path / "all" / "cifar10", "parquet").parent)
    assert np.array_equal(bare["test"].x, above["test"].x)


def test_batches_pickled_by_python_3_are_read(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path, "python") / "cifar-10-batches-py"
    want = COLOUR.build(folder)
    x, y = tiny.pictures(40, seed=1)
    (folder / "test_batch").write_bytes(pickle.dumps({"data": tiny.planes(x), "labels": y.tolist()}, protocol=2))
    assert np.array_equal(COLOUR.build(folder)["test"].x, want["test"].x)


@pytest.mark.parametrize(("image", "label", "kind"), [("image", "label", "PNG"), ("img", "labels", "WEBP")])
def test_parquet_columns_and_formats(tmp_path: Path, image: str, label: str, kind: str) -> None:
    from PIL import features

    if kind == "WEBP" and not features.check("webp"):
        pytest.skip("this Pillow has no WebP")
    for split, count, seed in (("train", 100, 0), ("test", 40, 1)):
        x, y = tiny.pictures(count, seed)
        x[:] = x[:, :1, :1]  # flat pictures survive WebP's default, lossy, setting almost unchanged
        tiny.write_parquet(tmp_path / f"{split}-00000-of-00001.parquet", x, y, image, label, kind)
    pixels, labels = rebuilt(COLOUR.build(tmp_path))
    x, y = tiny.pictures(100, seed=0)
    assert np.abs(pixels.astype(int) - x[:, :1, :1]).max() <= (0 if kind == "PNG" else 8)
    assert np.array_equal(labels, y)


def test_the_split_is_that_of_torch_random_split() -> None:
    train, val = carve(50_000)
    everything = torch.utils.data.TensorDataset(torch.arange(50_000))
    halves = torch.utils.data.random_split(everything, [45_000, 5_000], torch.Generator().manual_seed(42))
    assert train.tolist() == list(halves[0].indices)
    assert val.tolist() == list(halves[1].indices)
    assert train[:4].tolist() == [37542, 44491, 216, 43688]


def test_gray_is_pillows(tmp_path: Path) -> None:
    from PIL import Image as Pillow

    every = np.stack(np.meshgrid(np.arange(0, 256, 5), *[np.arange(256)] * 2, indexing="ij"), -1)
    every = every.astype(np.uint8).reshape(52, 256 * 256, 3)
    assert np.array_equal(luma(every), np.asarray(Pillow.fromarray(every).convert("L")))
    folder = tiny.write(tmp_path, "npz")
    gray, colour = GRAY.build(folder), COLOUR.build(folder)
    for split in ("train", "val", "test"):
        assert np.array_equal(gray[split].x[:, 0], luma(colour[split].x))
        assert np.array_equal(gray[split].y, colour[split].y)


def test_tensorflows_gray_is_a_level_darker_for_a_quarter_of_colours() -> None:
    """By its formula, in float32: what docs/image.md says of the Arena's own symbols."""
    levels = np.arange(0, 256, 3, dtype=np.uint8)
    colours = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(-1, 3)
    whole = (colours * np.float32(1 / 255)) @ np.array([0.2989, 0.587, 0.114], np.float32)
    darker = luma(colours).astype(int) - (whole * np.float32(255.5)).astype(np.uint8)
    assert set(np.unique(darker)) == {0, 1} and abs(darker.mean() - 0.26) < 0.01


def test_what_a_model_sees(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path, "npz")
    raw = torch.from_numpy(GRAY.build(folder)["test"].x.reshape(40, 1024, 1))
    tokens = replace(GRAY, tokenised=True)
    same = torch.from_numpy(tokens.build(folder)["test"].x.reshape(40, 1024))
    assert torch.equal(raw[..., 0], same)
    assert tokens.input == Tokens(256)
    assert isinstance(GRAY.input, Signal) and GRAY.input.levels == 256
    # As the code of amos2025 writes it: ToTensor, then Normalize(mean=122.6/255, std=61/255).
    want = (raw.double() / 255 - 122.6 / 255) / (61 / 255)
    assert torch.allclose(encode(raw, None, GRAY.input).double(), want, atol=1e-6)
    colour = torch.from_numpy(COLOUR.build(folder)["test"].x.reshape(40, 1024, 3))
    want = (colour.double() / 255 - torch.tensor([0.4914, 0.4822, 0.4465])) / torch.tensor([0.247, 0.243, 0.261])
    assert torch.allclose(encode(colour, None, COLOUR.input).double(), want, atol=1e-5)


def test_class_names_follow_the_labels(tmp_path: Path) -> None:
    test = GRAY.build(tiny.write(tmp_path, "npz"))["test"]
    assert set(zip(test.y.tolist(), test.slices["class"].tolist())) >= {(0, "airplane"), (3, "cat"), (9, "truck")}
    assert len(set(test.slices["class"].tolist())) == 10


def test_prepared_and_read_again(tmp_path: Path) -> None:
    sources = tiny.write(tmp_path / "sources", "binary")
    prepare(GRAY, tmp_path / "data", sources)
    splits = load(GRAY, tmp_path / "data")
    assert len(splits["val"]) == 10
    assert splits["train"].x.dtype == np.uint8
    assert set(GRAY.baselines(splits["train"], splits["test"])) == {"label_prior"}


def test_a_part_of_the_set_is_another_task() -> None:
    assert len({digest(t) for t in (Image(), Image(train=15_000, test=5_000), Image(tokenised=True))}) == 3
    with pytest.raises(UserError, match="train=10 to 50000"):
        Image(train=60_000)


# Damage. Each message is one sentence with the way out.


def test_no_sources_says_what_to_get() -> None:
    for task in (GRAY, COLOUR):
        with pytest.raises(UserError, match="levelfield data prepare") as call:
            task.build(None)
        assert "https://www.cs.toronto.edu/~kriz/cifar.html" in sentence(call)


def test_absent_or_empty_folder(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError) as call:
            GRAY.build(folder)
        assert str(folder) in sentence(call)


@pytest.mark.parametrize("form", ["python", "binary"])
def test_truncated_and_altered_archives(tmp_path: Path, form: tiny.Form) -> None:
    assert form in ("python", "binary")
    archive = tiny.pack(tiny.write(tmp_path, form), form)
    whole = archive.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0x55
    for damaged in (whole[: len(whole) // 2], bytes(flipped), b"not an archive", b""):
        archive.write_bytes(damaged)
        with pytest.raises(UserError) as call:
            GRAY.build(archive)
        assert "cs.toronto.edu" in sentence(call)


@pytest.mark.parametrize("form", ["python", "binary"])
def test_an_archive_that_was_decompressed_is_read(tmp_path: Path, form: tiny.Form) -> None:
    assert form in ("python", "binary")
    archive = tiny.pack(tiny.write(tmp_path / "made", form), form)
    expected = COLOUR.build(archive)
    plain = tmp_path / archive.name.removesuffix(".gz")
    plain.write_bytes(gzip.decompress(archive.read_bytes()))
    for sources in (plain, tmp_path):
        assert np.array_equal(COLOUR.build(sources)["train"].x, expected["train"].x)
    plain.write_bytes(plain.read_bytes()[:100_000])
    with pytest.raises(UserError, match="truncated or damaged") as call:
        COLOUR.build(plain)
    sentence(call)


@pytest.mark.parametrize("form", ["python", "binary"])
def test_a_batch_named_by_itself_is_not_called_damaged(tmp_path: Path, form: tiny.Form) -> None:
    batch = next(tiny.write(tmp_path, form).glob("*/data_batch_1*"))
    with pytest.raises(UserError, match=r"data_batch_1(\.bin)? is not an archive: .* the folder that holds") as call:
        COLOUR.build(batch)
    sentence(call)


@pytest.mark.parametrize("form", ["python", "binary"])
def test_missing_and_truncated_batches(tmp_path: Path, form: tiny.Form) -> None:
    folder = next(tiny.write(tmp_path, form).glob("cifar-10-*"))
    batch = next(folder.glob("data_batch_3*"))
    batch.write_bytes(batch.read_bytes()[:-100])
    with pytest.raises(UserError, match="data_batch_3") as call:
        GRAY.build(folder)
    sentence(call)
    batch.unlink()
    with pytest.raises(UserError, match="has no data_batch_3") as call:
        GRAY.build(folder)
    sentence(call)


def test_an_archive_with_other_members(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path, "python")
    (folder / "cifar-10-batches-py" / "test_batch").rename(folder / "cifar-10-batches-py" / "batches.meta")
    with pytest.raises(UserError, match="has no test_batch") as call:
        GRAY.build(tiny.pack(folder, "python"))
    sentence(call)


@pytest.mark.parametrize("form", tiny.FORMS)
def test_a_wrong_label(tmp_path: Path, form: tiny.Form, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = tiny.pictures(100, seed=0)
    y[7] = 10
    monkeypatch.setattr(tiny, "pictures", lambda count, seed: (x[:count], y[:count]))
    with pytest.raises(UserError, match=r"label outside 0\.\.9") as call:
        GRAY.build(tiny.write(tmp_path, form))
    sentence(call)


@pytest.mark.parametrize("form", tiny.FORMS)
def test_too_few_pictures(tmp_path: Path, form: tiny.Form) -> None:
    with pytest.raises(UserError, match=r"holds 40 of 10,000 test pictures.*with test=40") as call:
        replace(GRAY, test=41).build(tiny.write(tmp_path, form))
    sentence(call)


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return Path.touch, (tmp_path / "ran",)

    folder = tiny.write(tmp_path, "python") / "cifar-10-batches-py"
    (folder / "data_batch_1").write_bytes(pickle.dumps({"data": Attack(), "labels": [0]}, protocol=2))
    with pytest.raises(UserError, match="refused because it names") as call:
        GRAY.build(folder)
    sentence(call)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content",
    [
        {"data": np.zeros((20, 3072), np.float32), "labels": [0] * 20},
        {"data": np.zeros((20, 3071), np.uint8), "labels": [0] * 20},
        {"data": np.zeros((20, 3072), np.uint8), "labels": [0] * 19},
        {"data": [1, 2, 3], "labels": [0]},
        {"labels": [0]},
        [1, 2],
    ],
    ids=["floats", "short rows", "few labels", "no array", "no data", "no dict"],
)
def test_pickles_of_something_else(tmp_path: Path, content: object) -> None:
    folder = tiny.write(tmp_path, "python") / "cifar-10-batches-py"
    (folder / "data_batch_1").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(UserError, match="data_batch_1") as call:
        GRAY.build(folder)
    sentence(call)


def test_damaged_parquet(tmp_path: Path) -> None:
    x, y = tiny.pictures(100, seed=0)
    path = tiny.write(tmp_path, "parquet") / "train-00000-of-00001.parquet"
    cases = {
        "it is not CIFAR-10": lambda: tiny.write_parquet(path, x[:, :31], y),
        "is a JPEG": lambda: tiny.write_parquet(path, x, y, kind="JPEG"),
        "it needs img": lambda: tiny.write_parquet(path, x, y, image="picture"),
        "damaged parquet": lambda: path.write_bytes(path.read_bytes()[:-50]),
        "has no train": path.unlink,
    }
    for expected, damage in cases.items():
        damage()
        with pytest.raises(UserError, match=expected) as call:
            GRAY.build(tmp_path)
        sentence(call)


def test_a_folder_of_jpeg_pictures_is_told_by_name(tmp_path: Path) -> None:
    """As a public copy has them, one folder a class."""
    (tmp_path / "train" / "airplane").mkdir(parents=True)
    (tmp_path / "train" / "airplane" / "0001.jpg").write_bytes(tiny.encoded(tiny.pictures(1, seed=0)[0][0], "JPEG"))
    with pytest.raises(UserError, match="holds JPEG pictures, whose pixels differ from CIFAR-10's") as call:
        GRAY.build(tmp_path)
    sentence(call)


def test_damaged_npz(tmp_path: Path) -> None:
    path = tiny.write(tmp_path, "npz") / "cifar10.npz"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(UserError, match="truncated or damaged") as call:
        GRAY.build(tmp_path)
    sentence(call)
    np.savez(path, x_train=np.zeros((100, 32, 32, 3)), y_train=np.zeros(100))
    with pytest.raises(UserError, match="must be") as call:
        GRAY.build(tmp_path)
    sentence(call)
    np.savez(path, images=np.zeros(3))
    with pytest.raises(UserError, match="needs x_train") as call:
        GRAY.build(tmp_path)
    sentence(call)


def test_whole_blocks_must_be_the_official_ones(tmp_path: Path) -> None:
    x = np.zeros((10_000, 32, 32, 3), np.uint8)
    y = np.arange(10_000) % 10
    np.savez(tmp_path / "other.npz", x_train=x, y_train=y, x_test=x[:5], y_test=y[:5])
    with pytest.raises(UserError, match="train pictures 0 to 9,999 are not those of CIFAR-10") as call:
        Image(train=10_000, test=5).build(tmp_path)
    sentence(call)


@pytest.mark.data
def test_real_pictures_are_the_official_bytes(test_data: Path, tmp_path: Path) -> None:
    """`build` itself compares the first block with the MD5 of the official data_batch_1.bin."""
    splits = SCifar(train=15_000, test=5_000).build(test_data / "cifar10")
    pixels, labels = rebuilt(splits)
    first = tiny.records(pixels[:10_000], labels[:10_000].astype(np.uint8))
    assert hashlib.md5(first).hexdigest() == "5dd7e06a14cb22eb9f671a540d1b7c25"
    every = Pictures(pixels.reshape(-1, 1024, 3), labels).records()
    assert hashlib.sha256(every).hexdigest() == "c4f17f75cdf02689870e0329e0858ed1a678a9abc6d3002c146044f284531687"
    test = Pictures(splits["test"].x.reshape(-1, 1024, 3), splits["test"].y).records()
    assert hashlib.sha256(test).hexdigest() == "81bf0a9715c416403470647beac07e40417e39f3a92de01ec527fbc786ad796a"

    altered = bytearray(first)
    altered[12_345_678] ^= 1
    (tmp_path / "data_batch_1.bin").write_bytes(altered)
    (tmp_path / "test_batch.bin").write_bytes(test[: 5 * 3073])
    with pytest.raises(UserError, match="damaged, lossy or reordered") as call:
        Image(train=10_000, test=5).build(tmp_path)
    sentence(call)


@pytest.mark.parametrize("side", [8, 16])
def test_pooled_pictures_are_means_of_blocks(tmp_path: Path, side: int) -> None:
    """Against Pillow, which rounds a mean that lies between two levels up as well."""
    gray = GRAY.build(tiny.write(tmp_path / "cifar", "binary"))["train"].x.reshape(-1, 32, 32)
    small = replace(GRAY, side=side).build(tmp_path / "cifar")["train"]
    assert small.x.dtype == np.uint8 and set(np.diff(small.offsets)) == {side * side}
    for whole, ours in zip(gray, small.x.reshape(-1, side, side), strict=True):
        assert np.array_equal(np.asarray(PillowImage.fromarray(whole).reduce(32 // side)), ours)


def test_pooled_pictures_are_another_task_and_whole_ones_are_what_they_were() -> None:
    assert Image(side=8).name == "image8" and Image(side=32) == Image()
    assert digest(Image(side=32)) == digest(Image()) != digest(Image(side=16))
    with pytest.raises(UserError, match="side of 8, 16, 32 pixels, not 7"):
        Image(side=7)


def test_pooled_pictures_move_by_the_same_share_of_their_side() -> None:
    """The affine map alone, at its largest shift to the right: 0.1 of the side, in whole pixels."""
    uniforms = torch.full((1, DRAWS), 0.999999)
    uniforms[:, -5:] = torch.tensor([0.5, 0.999999, 0.5, 0.5, 0.5])  # turn, right, down, scale, shear
    for side, pixels in ((32, 3), (16, 2), (8, 1)):
        picture = torch.randint(0, 256, (1, 1, side, side), dtype=torch.uint8)
        moved = policy(picture.clone(), uniforms)
        assert torch.equal(moved[..., pixels:], picture[..., :-pixels]) and not moved[..., :pixels].any()
