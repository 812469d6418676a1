"""BIDMC: its two forms, the papers' split and what leaks through it, targets, and what is refused."""

from __future__ import annotations

import lzma
import os
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import fixtures_bidmc as fixture
import numpy as np
import pytest
import test_tasks
from fingerprints import fingerprint

from levelfield.data import prepared
from levelfield.spec import SPLITS, UserError
from levelfield.tasks import bidmc
from levelfield.tasks._bidmc import overlap, records
from levelfield.tasks._bidmc import ts_format as ts
from levelfield.tasks.bidmc import Bidmc, carve, target_range


@pytest.fixture(scope="module")
def monash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixture.write_monash(tmp_path_factory.mktemp("monash"), "HR")


@pytest.fixture(scope="module")
def physionet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixture.write_physionet(tmp_path_factory.mktemp("bidmc") / "bidmc_csv")


def test_a_ts_file_is_read_as_written(monash: Path) -> None:
    """Eight recordings of 56 seconds, a window each 8: four each, those of six in the train file."""
    x, y = ts.read(monash / "BIDMC32HR_TRAIN.ts", 4_000, 2)
    expected = np.concatenate([fixture.windows(n, 8, 56) for n in range(1, 7)])
    assert x.dtype == np.float32 and np.array_equal(x, expected.astype(np.float32))
    assert y.tolist() == [60 + 7 * n + i / 8 for n in range(1, 7) for i in range(4)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@timeStamps true\n@data\n", "time stamps"),
        ("@classLabel true 0 1\n@data\n", "no @targetlabel true"),
        ("@data\n", "holds no series"),
        ("1,2,3:4\n@data\n", "line 1 comes before @data"),
        ("@data\n1,2,3:5\n", "line 2 has 1 channels"),
        ("@data\n1,2,3:1,2:5\n", "line 2 has 2 numbers where 3 should be"),
        ("@data\n1,2,3:1,?,3:5\n", r"line 2 has '\?'"),
        ("@data\n1,2,3:1,NaN,3:5\n", "not all of them finite"),
        ("@data\n1,2,3:1,2,3:\n", "line 2 has ''"),
        ("@data\n1,2,3:1,2,3:5\n1,2\n", "line 3 has 0 channels"),
    ],
)
def test_a_fault_in_a_ts_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "X_TRAIN.ts"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"X_TRAIN\.ts.*{message}"):
        ts.read(path, 3, 2)


@pytest.mark.parametrize("compress", [False, True])
def test_a_byte_order_mark_before_a_ts_file_is_skipped(tmp_path: Path, compress: bool) -> None:
    text = b"\xef\xbb\xbf@problemName x\n@data\n1,2,3:4,5,6:7\n"
    path = tmp_path / ("X_TRAIN.ts.xz" if compress else "X_TRAIN.ts")
    path.write_bytes(lzma.compress(text) if compress else text)
    x, y = ts.read(path, 3, 2)
    assert (x.tolist(), y.tolist()) == ([[[1, 4], [2, 5], [3, 6]]], [7])


def test_the_ts_reader_agrees_with_aeon(monash: Path) -> None:
    aeon = pytest.importorskip("aeon.datasets", reason="aeon is not installed")
    theirs, targets = aeon.load_from_ts_file(str(monash / "BIDMC32HR_TEST.ts"))
    x, y = ts.read(monash / "BIDMC32HR_TEST.ts", 4_000, 2)
    assert np.array_equal(x, theirs.swapaxes(1, 2).astype(np.float32)) and np.array_equal(y, targets.astype(float))


def test_files_are_found_where_people_put_them(monash: Path, tmp_path: Path) -> None:
    """In one folder, in a folder for each target as the S4 instructions have it, or xz-compressed."""
    task = Bidmc("hr", "windows", "monash")
    expected = fingerprint(task.build(monash))
    home = tmp_path / "bidmc" / "HR"
    home.mkdir(parents=True)
    for path in monash.iterdir():
        (home / f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes(), preset=0))
    assert fingerprint(task.build(tmp_path)) == fingerprint(task.build(tmp_path / "bidmc")) == expected


def test_the_split_is_scikit_learns() -> None:
    """Twenty rows through train_test_split(test_size=0.3, random_state=0), its rest halved with random_state=1."""
    rows = carve(20)
    assert rows["train"].tolist() == [6, 13, 4, 2, 5, 14, 9, 7, 16, 11, 3, 0, 15, 12]
    assert (rows["val"].tolist(), rows["test"].tolist()) == ([18, 8, 17], [19, 1, 10])
    whole = carve(7_949)
    assert [len(whole[split]) for split in SPLITS] == [5_564, 1_192, 1_193]
    assert [whole[split][0] for split in SPLITS] == [4_225, 1_700, 1_864]
    for count in (4, 5, 11):
        assert sorted(np.concatenate(list(carve(count).values())).tolist()) == list(range(count))
        assert all(len(part) for part in carve(count).values())
    with pytest.raises(UserError, match="3 cannot be split"):
        carve(3)


def test_the_papers_split_shuffles_windows_of_both_files(monash: Path) -> None:
    splits = Bidmc("hr", "windows", "monash", rescale=False).build(monash)
    windows = np.concatenate([fixture.windows(n, 8, 56) for n in range(1, 9)]).astype(np.float32)
    targets = np.array([60 + 7 * n + i / 8 for n in range(1, 9) for i in range(4)])
    for split, rows in carve(32).items():
        assert np.array_equal(splits[split].x.reshape(-1, 4_000, 2), windows[rows])
        assert np.array_equal(splits[split].y[:, 0], targets[rows].astype(np.float32))


@pytest.mark.parametrize("origin", ["monash", "physionet"])
def test_by_patient_no_recording_is_in_two_splits(monash: Path, physionet: Path, origin: str) -> None:
    """A recording is told by its heart rate, 67 to 116 in steps of 7."""
    task = Bidmc("hr", "patients", origin, stride=8, rescale=False)  # type: ignore[arg-type]
    splits = task.build(monash if origin == "monash" else physionet)
    found = {split: {round((float(y) - 60.5) / 7) for y in splits[split].y[:, 0]} for split in SPLITS}
    assert sum(map(len, found.values())) == 8
    assert set.union(*found.values()) == set(range(1, 9))
    assert set(splits["test"].slices["shared"]) == {"none"}
    assert task.baselines(splits["train"], splits["test"]) == {"nearest_window": 0.0}


def test_copying_a_neighbour_shows_what_leaks_when_windows_are_shuffled(physionet: Path) -> None:
    task = Bidmc("hr", "windows", "physionet", stride=3)
    splits = task.build(physionet)
    assert set(splits["test"].slices["shared"]) == {"half or more"}
    assert task.baselines(splits["train"], splits["test"])["nearest_window"] == pytest.approx(1.0)


def test_recordings_are_told_apart_by_the_seconds_they_share() -> None:
    rng = np.random.default_rng(0)
    long = rng.normal(size=(3, 100, 2))
    flat = np.zeros((40, 2))
    windows = [long[r, s : s + 40] for r, s in ((0, 0), (1, 10), (2, 0), (0, 30), (1, 40), (0, 60), (2, 30))]
    keys = overlap.seconds(np.stack([*windows, flat, flat]), rate=10)
    assert overlap.recordings(keys).tolist() == [0, 1, 2, 0, 1, 0, 2, 3, 4]
    best, shared = overlap.nearest(keys[:3], keys[3:])
    assert (best.tolist(), shared.tolist()) == ([0, 1, -1, 2, -1, -1], [1, 1, 0, 1, 0, 0])


def test_windows_that_do_not_overlap_cannot_be_split_by_patient(tmp_path: Path) -> None:
    fixture.write_monash(tmp_path, "RR", stride=32, seconds=64)
    with pytest.raises(UserError, match="origin='physionet'"):
        Bidmc("rr", "patients", "monash").build(tmp_path)


def test_windows_begin_every_so_many_seconds_and_have_the_monitors_mean(physionet: Path) -> None:
    found = records.read(physionet, ("hr", "rr", "spo2"), 8, records_report)
    first = [0, 1, 2, 3]
    lost = first[1:]  # the window that begins at second 0 of record 1 has a breath missing at second 3
    assert found.record.tolist() == [1] * len(lost) + [n for n in range(2, 9) for _ in first]
    expected = np.concatenate([fixture.windows(1, 8, 56)[lost], *(fixture.windows(n, 8, 56) for n in range(2, 9))])
    assert np.array_equal(found.x, expected.astype(np.float32))
    for row, number in zip(found.y, found.record):
        rates = fixture.recording(int(number), 1)[1]
        np.testing.assert_allclose(row, [rates["HR"], rates["RESP"], rates["SpO2"]])


def records_report(what: str, done: int, total: int) -> None:
    assert 0 < done <= total


def test_the_monitors_values_are_averaged_over_the_window_and_no_further(tmp_path: Path) -> None:
    fixture.write_physionet(tmp_path, recordings=1, seconds=40)
    table = "\n".join(["Time [s], HR, PULSE, RESP, SpO2", *(f"{s},{s},0,1,2" for s in range(41))])
    (tmp_path / "bidmc_01_Numerics.csv").write_text(table)
    found = records.read(tmp_path, ("hr",), 4, records_report)
    assert found.y[:, 0].tolist() == [np.mean(range(s, s + 32)) for s in (0, 4, 8)]


def test_all_three_values_at_once(physionet: Path) -> None:
    task = Bidmc(stride=8)
    assert (task.name, task.output.dims) == ("bidmc", 3)
    splits = task.build(physionet)
    train = splits["train"].y
    np.testing.assert_allclose([train.min(0), train.max(0)], [[-1] * 3, [1] * 3], atol=1e-6)


def test_the_release_is_read_from_its_zip(physionet: Path, tmp_path: Path) -> None:
    archive = tmp_path / records.ARCHIVE
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for path in sorted(physionet.iterdir()):
            packed.write(path, f"bidmc-ppg-and-respiration-dataset-1.0.0/bidmc_csv/{path.name}")
    task = Bidmc(stride=8)
    expected = fingerprint(task.build(physionet))
    assert fingerprint(task.build(archive)) == fingerprint(task.build(tmp_path)) == expected
    assert fingerprint(task.build(physionet.parent)) == expected
    archive.write_bytes(archive.read_bytes()[:-100])
    with pytest.raises(UserError, match="truncated or damaged"):
        task.build(tmp_path)


@pytest.mark.parametrize("rate", [45, 67, 100, 140, 180])
def test_beats_are_counted_at_any_usual_rate(rate: int) -> None:
    time = np.arange(4_000) / 125
    ecg = np.exp(-np.square(((time * rate / 60) % 1 - 0.5) * 60 / rate / 0.02))  # 20 ms, whatever the rate
    assert records.beats(ecg) == pytest.approx(rate, rel=0.005)
    assert np.isnan(records.beats(np.zeros(4_000)))


def test_targets_are_rescaled_by_the_training_range(monash: Path) -> None:
    """As the original's _rescale_target_values: (y - min) / (max - min) * 2 - 1 with the range of |y| in training."""
    raw, ours = (Bidmc("hr", "windows", "monash", rescale=r).build(monash) for r in (False, True))
    low, high = (float(f(raw["train"].y)) for f in (np.min, np.max))
    for split in SPLITS:
        np.testing.assert_allclose(ours[split].y, (raw[split].y - low) / (high - low) * 2 - 1, atol=1e-5)
    assert [float(v[0]) for v in target_range(np.array([[-3.0], [2.0], [5.0]]))] == [2, 5]


def test_only_the_papers_preparation_has_the_papers_names() -> None:
    assert Bidmc("hr", "windows", "monash").name == "bidmc_hr"
    assert Bidmc("spo2", "windows", "monash").name == "bidmc_spo2"
    assert Bidmc("rr", "patients", "monash").name == "bidmc_rr_patients"
    assert Bidmc("rr").name == "bidmc_rr_physionet"
    assert Bidmc("rr", "windows").name == "bidmc_rr_physionet_windows"
    with pytest.raises(UserError, match="targets hr, rr, spo2"):
        Bidmc("all", "windows", "monash")


def test_each_target_fetches_only_its_own_files() -> None:
    names = [archive.name for archive in Bidmc("spo2", "windows", "monash").archives]
    assert names == ["BIDMC32SpO2_TRAIN.ts", "BIDMC32SpO2_TEST.ts"]
    assert [archive.name for archive in Bidmc().archives] == [records.ARCHIVE]


def test_what_is_missing_is_one_sentence(tmp_path: Path, physionet: Path) -> None:
    with pytest.raises(UserError, match=r"BIDMC32HR_TRAIN\.ts and BIDMC32HR_TEST\.ts: run `levelfield data prepare bi"):
        Bidmc("hr", "windows", "monash").build(None)
    with pytest.raises(UserError, match="does not exist"):
        Bidmc().build(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"holds neither bidmc-ppg.*zip nor"):
        Bidmc().build(tmp_path)
    with pytest.raises(UserError, match=r"holds no BIDMC32HR_TRAIN\.ts"):
        Bidmc("hr", "windows", "monash").build(tmp_path)
    (tmp_path / "bidmc_01_Signals.csv").write_bytes((physionet / "bidmc_01_Signals.csv").read_bytes())
    with pytest.raises(UserError, match=r"has no bidmc_01_Numerics\.csv beside it"):
        Bidmc().build(tmp_path)
    (tmp_path / "bidmc_01_Signals.csv").write_text("Time [s], RESP, PLETH\n0,0,0\n")
    with pytest.raises(UserError, match="has no column II"):
        Bidmc().build(tmp_path)


def one_record(folder: Path) -> Path:
    fixture.write_physionet(folder, recordings=1, seconds=33)
    return folder


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    expected = records.read(one_record(tmp_path), ("hr",), 1, records_report)
    for path in tmp_path.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    found = records.read(tmp_path, ("hr",), 1, records_report)
    assert np.array_equal(found.x, expected.x) and np.array_equal(found.y, expected.y)


@pytest.mark.parametrize("rows", [0, 1, 3_999])
def test_a_record_shorter_than_a_window_is_named(tmp_path: Path, rows: int) -> None:
    path = one_record(tmp_path) / "bidmc_01_Signals.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[: rows + 1]))
    with pytest.raises(UserError, match=rf"bidmc_01_Signals\.csv has {rows:,} samples, fewer than a window's 4,000"):
        records.read(tmp_path, ("hr",), 1, records_report)


def test_a_monitor_without_values_is_named(tmp_path: Path) -> None:
    """Only a header, or no value in any window."""
    numerics = one_record(tmp_path) / "bidmc_01_Numerics.csv"
    header = "Time [s], HR, PULSE, RESP, SpO2\n"
    numerics.write_text(header)
    with pytest.raises(UserError, match=r"bidmc_01_Numerics\.csv has a header and no values"):
        Bidmc("hr").build(tmp_path)
    numerics.write_text(header + "".join(f"{second},,,,\n" for second in range(34)))
    with pytest.raises(UserError, match=r"No window of .* has every value of hr"):
        Bidmc("hr").build(tmp_path)


@pytest.mark.parametrize("line", [0, 1])
def test_a_cell_too_long_for_the_csv_reader_is_named(tmp_path: Path, line: int) -> None:
    path = one_record(tmp_path) / "bidmc_01_Signals.csv"
    lines = path.read_text().splitlines()
    lines[line] += "0" * 140_000
    path.write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"bidmc_01_Signals\.csv is damaged \(field larger"):
        records.read(tmp_path, ("hr",), 1, records_report)


def test_only_a_part_of_the_records_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few records, or as many as there should be of which one is short."""
    folder = fixture.write_physionet(tmp_path / "bidmc_csv", recordings=4, seconds=33)
    task = Bidmc("hr", stride=1)
    with pytest.warns(UserWarning, match=r"bidmc_csv is only a part of the official release: 4 records, 0 of them"):
        at = prepared.prepare(task, tmp_path / "data", folder)
    (note,) = prepared.manifest(at)["notes"]
    assert note.endswith("where there should be 53 of 60,001.")
    monkeypatch.setattr(records, "RECORDS", 4)
    monkeypatch.setattr(records, "ROWS", 33 * 125 + 1)
    assert heard(lambda: records.read(folder, ("hr",), 1, records_report)) == []
    path = folder / "bidmc_04_Signals.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    (told,) = heard(lambda: records.read(folder, ("hr",), 1, records_report))
    assert "4 records, 3 of them of 4,126 samples" in told


def test_only_a_part_of_the_archives_windows_is_told(monash: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Bidmc("hr", "windows", "monash")
    with pytest.warns(UserWarning, match=r"only a part of the official files: 32 windows, where there should be 7,949"):
        task.build(monash)
    monkeypatch.setattr(bidmc, "WINDOWS", 32)
    assert heard(lambda: task.build(monash)) == []


def heard(call: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in told]


def test_the_contract_holds_on_the_fixture(physionet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVELFIELD_TEST_DATA", str(physionet))
    task = Bidmc("hr", stride=8)
    test_tasks.test_splits_are_disjoint(task)
    test_tasks.test_arrays_are_as_declared(task)
    test_tasks.test_inputs_are_in_range(task)
    test_tasks.test_targets_are_in_range(task)
    test_tasks.test_building_is_deterministic_and_touches_no_global_generator(task)
    test_tasks.test_progress_that_is_told_adds_up(task)
    test_tasks.test_prepared_arrays_are_the_built_ones(task, tmp_path)
    test_tasks.test_chance_and_baselines(task)


@pytest.mark.data
def test_real_record_01_is_cut_into_150_windows_with_a_steady_pulse() -> None:
    """Eight minutes, a window every three seconds. wfdb's XQRS detector finds 730 beats in it, 91.3 a minute."""
    folder = os.environ.get("LEVELFIELD_TEST_DATA")
    if not folder or not (Path(folder) / "bidmc").is_dir():
        pytest.skip("needs bidmc, set LEVELFIELD_TEST_DATA")
    at = Path(folder) / "bidmc"
    with lzma.open(at / "bidmc_01_Signals.csv.xz", "rt") as file:
        first = [float(v) for v in file.readlines()[1].split(",")]
    found = records.read(at, ("beats",), 3, records_report)
    assert found.x.shape == (150, 4_000, 2)
    np.testing.assert_allclose(found.x[0, 0], [first[2], first[5]], rtol=1e-6)
    assert np.mean(found.y) == pytest.approx(91.3, abs=0.3)
    assert np.ptp(found.y) < 6
    with pytest.raises(UserError, match="has no bidmc_01_Numerics"):
        Bidmc("hr").build(at)
