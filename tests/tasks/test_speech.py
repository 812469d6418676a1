"""Speech Commands: what is read, how it is split and standardised, and what is refused."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import fixtures_speech as fixture
import numpy as np
import pytest
import test_tasks
import torch
from fingerprints import fingerprint

from levelfield.spec import SPLITS, Examples, UserError
from levelfield.tasks import speech
from levelfield.tasks._speech import files
from levelfield.tasks._speech.decimate import decimate, low_pass
from levelfield.tasks.speech import Speech

PARTS = {"train": 35, "val": 35, "test": 35}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixture.write(tmp_path_factory.mktemp("speech_commands_v0.02"))


def plain(examples: Examples) -> dict[str, np.ndarray]:
    """Word -> the stored clip, (steps,)."""
    return {str(w): examples.sequence(i)[:, 0] for i, w in enumerate(examples.slices["word"])}


def test_clips_are_those_of_the_lists_padded_and_cut_to_a_second(tree: Path) -> None:
    splits = Speech(standardise="none", **PARTS).build(tree)
    for split in SPLITS:
        stored = plain(splits[split])
        assert set(stored) == set(fixture.WORDS)
        for name in fixture.names(split):
            samples = fixture.sound(name)[:16_000]
            expected = np.concatenate([samples, np.zeros(16_000 - len(samples), np.int16)])
            assert np.array_equal(stored[name.split("/")[0]], expected)
    train = splits["train"]
    assert train.x.dtype == np.int16 and (train.lengths == 16_000).all()
    assert [fixture.WORDS[y] for y in train.y] == train.slices["word"].tolist()
    assert train.slices["word"][train.slices["clip"] == "padded"].tolist() == ["cat"]
    assert set(splits["test"].slices["speaker"]) == {"new"} and set(train.slices["speaker"]) == {"in training"}
    kinds = dict(zip(train.slices["word"].tolist(), train.slices["kind"].tolist()))
    assert (kinds["stop"], kinds["zero"], kinds["visual"]) == ("command", "digit", "other")


@pytest.mark.parametrize("name", ["speech_commands_v0.02.tar.gz", "speech_commands_v0.02.tar.xz"])
def test_an_archive_is_read_like_the_tree_it_unpacks_to(tree: Path, tmp_path: Path, name: str) -> None:
    task = Speech(steps=2_000, train=20, val=5, test=5)
    archive = fixture.pack(tree, tmp_path / name)
    expected = fingerprint(task.build(tree))
    assert fingerprint(task.build(tree.parent)) == expected, "one level up"
    assert fingerprint(task.build(tmp_path)) == expected
    assert fingerprint(task.build(archive)) == expected


def test_a_part_is_a_prefix_of_the_whole(tree: Path) -> None:
    whole, part = (Speech(standardise="none", train=n, val=5, test=n).build(tree) for n in (35, 11))
    for split in SPLITS:
        assert np.array_equal(part[split].x, whole[split].x[: len(part[split].x)])
    assert len(set(whole["train"].slices["word"][:11])) == 11, "spread over words"


def test_sets_that_do_not_fit_in_memory_lie_in_a_file(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Speech(**PARTS)
    expected = fingerprint(task.build(tree))
    monkeypatch.setattr(speech, "IN_MEMORY", 0)
    splits = task.build(tree)
    assert isinstance(splits["train"].x, np.memmap)
    assert fingerprint(splits) == expected
    monkeypatch.setattr(speech.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(UserError, match="TMPDIR"):
        task.build(tree)


def test_the_contract_holds_on_the_fixture(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVELFIELD_TEST_DATA", str(tree))
    task = Speech(steps=2_000, train=34, val=33, test=32)
    test_tasks.test_splits_are_disjoint(task)
    test_tasks.test_arrays_are_as_declared(task)
    test_tasks.test_inputs_are_in_range(task)
    test_tasks.test_targets_are_in_range(task)
    test_tasks.test_building_is_deterministic_and_touches_no_global_generator(task)
    test_tasks.test_progress_that_is_told_adds_up(task)
    test_tasks.test_prepared_arrays_are_the_built_ones(task, tmp_path)
    test_tasks.test_chance_and_baselines(task)


def test_each_step_is_standardised_over_the_training_clips(tree: Path) -> None:
    """As the original does it in torch, one step at a time, with the deviation of N - 1 and 1e-5 added to it."""
    raw = Speech(standardise="none", **PARTS).build(tree)
    ours = Speech(**PARTS).build(tree)
    clips = {s: torch.from_numpy(raw[s].x.reshape(35, 16_000).astype(np.float64)) / 2**15 for s in SPLITS}
    for split in SPLITS:
        got = torch.from_numpy(np.asarray(ours[split].x.reshape(35, 16_000), np.float64))
        for step in (0, 1, 4_321, 11_999, 15_998):
            mean, std = clips["train"][:, step].mean(), clips["train"][:, step].std()
            expected = (clips[split][:, step] - mean) / (std + 1e-5)
            torch.testing.assert_close(got[:, step], expected, rtol=2**-11, atol=1e-7)


def test_steps_that_never_sound_in_training_stay_finite() -> None:
    mean, scale = speech.step_statistics(np.zeros((3, 4), np.int16))
    loud = speech._as_floats(np.full((2, 4), 32_767, np.int16), mean, scale)
    assert np.isfinite(loud).all()


def test_statistics_of_full_scale_sound_are_exact() -> None:
    x = np.random.default_rng(0).choice([-32_768, 32_767], (200, 3)).astype(np.int16)
    mean, scale = speech.step_statistics(x)
    np.testing.assert_allclose(mean, (x / 2**15).mean(0), atol=1e-15)
    np.testing.assert_allclose(scale, (x / 2**15).std(0, ddof=1) + 1e-5, rtol=1e-13)


def test_each_clip_is_standardised_by_itself(tree: Path) -> None:
    ours = plain(Speech(standardise="clip", **PARTS).build(tree)["test"])
    clip = fixture.sound(fixture.names("test")[3]) / 2**15
    np.testing.assert_allclose(ours["cat"], (clip - clip.mean()) / (clip.std(ddof=1) + 1e-5), rtol=2**-11, atol=1e-7)


def test_names_tell_the_papers_preparation_from_others() -> None:
    assert Speech().name == "speech"
    assert Speech(standardise="clip").name == "speech_clip"
    assert Speech(steps=2_000).name == "speech_2k"
    with pytest.raises(UserError, match="2,000 steps, not 1,000"):
        Speech(steps=1_000)


def test_the_filter_keeps_what_is_below_the_new_nyquist_frequency_and_nothing_above() -> None:
    """Of tones at 16 kHz, those below 0.8 kHz come through at 2 kHz as they are, those above 1 kHz not at all."""
    time = np.arange(16_000) / 16_000
    inner = slice(100, -100)
    for hertz in (50, 300, 800):
        tone = np.sin(2 * np.pi * hertz * time + 0.3)[None]
        np.testing.assert_allclose(decimate(tone, 8)[0, inner], tone[0, ::8][inner], atol=1e-3)
    for hertz in (1_000, 1_100, 1_500, 1_950, 3_000, 7_900):
        assert np.abs(decimate(np.sin(2 * np.pi * hertz * time + 0.3)[None], 8)[0, inner]).max() < 2e-4


def test_the_fft_gives_the_plain_convolution() -> None:
    x = np.random.default_rng(1).normal(size=(2, 403))
    for factor in (1, 4, 8):
        taps = low_pass(factor) if factor > 1 else np.ones(1)
        half = len(taps) // 2
        for row, got in zip(x, decimate(x, factor)):
            padded = np.concatenate([np.zeros(half), row, np.zeros(half)])
            naive = [padded[k : k + len(taps)] @ taps for k in range(0, len(row), factor)]
            np.testing.assert_allclose(got, naive, atol=1e-12)


def test_clips_are_decimated_before_they_are_standardised(tree: Path) -> None:
    ours = plain(Speech(steps=4_000, standardise="none", **PARTS).build(tree)["val"])
    clip = fixture.sound(fixture.names("val")[0]).astype(float)
    assert np.array_equal(ours["backward"], np.rint(decimate(clip[None], 4)[0]))


@pytest.mark.parametrize(
    ("split", "clips"),
    [  # entries of the official lists, and clips that are in neither
        ("val", ["cat/8b775397_nohash_0.wav", "go/6a27a9bf_nohash_0.wav", "four/fd32732a_nohash_1.wav"]),
        ("test", ["cat/2aa787cf_nohash_0.wav", "cat/ffa76c4a_nohash_0.wav", "five/f264e0df_nohash_0.wav"]),
        ("train", ["cat/00f0204f_nohash_0.wav"]),
    ],
)
def test_the_readmes_hash_puts_known_speakers_where_the_lists_have_them(split: str, clips: list[str]) -> None:
    assert {files.partition(clip) for clip in clips} == {split}


def test_without_lists_the_hash_decides(tree: Path, tmp_path: Path) -> None:
    task = Speech(steps=2_000, **PARTS)
    bare = fixture.write(tmp_path / "bare", lists=False)
    assert files.survey(bare, speech.no_progress).by == "hash"
    assert fingerprint(task.build(bare)) == fingerprint(task.build(tree))


def test_lists_that_are_not_as_released_are_refused(tmp_path: Path) -> None:
    tree = fixture.write(tmp_path / "speech_commands")
    twice = tree / "testing_list.txt"
    twice.write_text(f"{twice.read_text()}{fixture.names('val')[0]}\n")
    with pytest.raises(UserError, match=r"backward/8b775397_nohash_0.wav is in both lists"):
        Speech(**PARTS).build(tree)
    twice.unlink()
    with pytest.raises(UserError, match="it needs both, or neither"):
        Speech(**PARTS).build(tree)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (fixture.wav(np.zeros(8, np.int16), channels=2), "2 channels"),
        (fixture.wav(np.zeros(8, np.int16), rate=8_000), "8,000 Hz"),
        (fixture.wav(np.zeros(8, np.int16), bits=8), "8 bits"),
        (fixture.wav(np.zeros(8, np.int16))[:-4], "holds 6 of 8 samples"),
        (fixture.wav(np.zeros(0, np.int16)), "holds 0 of 0 samples"),
        (b"RIFF", "not a readable wav"),
        (b"", r"not a readable wav file \(\w.+\): get the release again"),
        (
            fixture.wav(np.zeros(8, np.int16)).replace(b"fmt \x10", b"fmt \xff"),
            r"not a readable wav file \(\w.+\): get",
        ),
        (b"fLaC" + bytes(40), "not a readable wav"),
    ],
)
def test_a_clip_that_is_not_as_released_is_named(data: bytes, message: str) -> None:
    with pytest.raises(UserError, match=rf"^yes/a_nohash_0.wav .*{message}"):
        files.decode(data, "yes/a_nohash_0.wav")


def test_what_is_missing_is_one_sentence(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="levelfield data prepare speech"):
        Speech().build(None)
    with pytest.raises(UserError, match="does not exist"):
        Speech().build(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"neither speech_commands_v0\.02\.tar\.gz nor a folder"):
        Speech().build(tmp_path)
    with pytest.raises(UserError, match=r"35 of 84,843 train.*Speech\(train=35, val=35, test=35\)"):
        Speech().build(tree)


def test_a_part_that_would_itself_be_refused_is_not_advised(tmp_path: Path) -> None:
    tree = fixture.write(tmp_path / "speech_commands")
    for name in fixture.names("val"):
        (tree / name).unlink()
    with pytest.raises(UserError, match=r"35 of 84,843 train, 0 of 9,981 val, .* clips: get the whole release\.$"):
        Speech().build(tree)


def test_a_folder_that_is_no_word_is_named(tmp_path: Path) -> None:
    tree = fixture.write(tmp_path / "speech_commands")
    (tree / "hello").mkdir()
    (tree / "hello" / "a_nohash_0.wav").write_bytes(fixture.wav(np.zeros(8, np.int16)))
    with pytest.raises(UserError, match=r"hello/a_nohash_0.wav is not a clip"):
        Speech(**PARTS).build(tree)


def test_a_damaged_archive_is_one_sentence(tree: Path, tmp_path: Path) -> None:
    archive = fixture.pack(tree, tmp_path / "speech_commands_v0.02.tar.gz")
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="truncated or damaged"):
        Speech(**PARTS).build(archive)
    archive.write_bytes(whole[:-8] + b"\0\0\0\0" + whole[-4:])
    with pytest.raises(UserError, match="truncated or damaged"):
        Speech(**PARTS).build(archive)


def real(name: str) -> Path:
    folder = os.environ.get("LEVELFIELD_TEST_DATA")
    found = sorted((Path(folder) / name).glob("*.tar*")) if folder else []
    if not found:
        pytest.skip(f"needs {name}, set LEVELFIELD_TEST_DATA")
    return found[0]


@pytest.mark.data
def test_real_clips_are_read_to_the_sample() -> None:
    """Against the bytes behind each file's data chunk, which a fixed canonical header of 44 bytes precedes."""
    archive = real("speech_commands")
    splits = Speech(standardise="none", train=564, val=90, test=130).build(archive)
    expected: Counter[str] = Counter()
    speakers: set[str] = set()
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.endswith(".wav"):
                content = tar.extractfile(member).read()  # type: ignore[union-attr]
                expected[hashlib.sha256(content[44:]).hexdigest()] += 1
                speakers.add(files.partition(member.name))
    stored = (splits[s].sequence(i).astype("<i2").tobytes() for s in SPLITS for i in range(len(splits[s])))
    assert Counter(hashlib.sha256(clip).hexdigest() for clip in stored) == expected
    assert expected.total() == 784
    assert speakers == {"test"}, "every one of these clips is an official test clip"
    assert {str(w) for s in SPLITS for w in splits[s].slices["word"]} == set(fixture.WORDS)
    assert set(splits["test"].slices["speaker"]) == {"new"}


@pytest.mark.data
def test_real_digits_at_another_rate_are_refused() -> None:
    with tarfile.open(real("fsdd")) as tar:
        member = next(m for m in tar if m.name.endswith(".wav"))
        content = tar.extractfile(member).read()  # type: ignore[union-attr]
    with pytest.raises(UserError, match="1 channels of 16 bits at 8,000 Hz"):
        files.decode(content, member.name)


@pytest.mark.data
def test_real_speech_loses_only_high_frequencies_at_2_khz() -> None:
    with tarfile.open(real("speech_commands")) as tar:
        member = next(m for m in tar if m.name.endswith(".wav"))
        clip = files.decode(tar.extractfile(member).read(), member.name).astype(float)  # type: ignore[union-attr]
    clip *= np.hanning(len(clip))  # so that both spectra see no edge
    few = decimate(clip[None], 8)[0]
    spectrum, kept = np.abs(np.fft.rfft(clip)), 8 * np.abs(np.fft.rfft(few))
    loud = spectrum[100:800] > spectrum.max() / 20
    assert loud.sum() > 50
    np.testing.assert_allclose(kept[100:800][loud], spectrum[100:800][loud], rtol=0.01)
