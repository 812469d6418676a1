"""Questions to copies of a language model: the same answers from one and from two, and nothing asked twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import flat_files
import pytest
import torch
from paced import wait_for
from repository import TESTS
from stages import Heard, Threads

from levelfield.cli import app, ruler_command, ruler_copies
from levelfield.engine import jobs, local, pool
from levelfield.engine import placement as placements
from levelfield.engine.driver import Driver, Outcome
from levelfield.engine.models import Named
from levelfield.engine.placement import HERE
from levelfield.engine.pool import Pool
from levelfield.engine.questions import Job, answered, plan
from levelfield.files import read_rows
from levelfield.longcontext import blocks, runner
from levelfield.longcontext.answers import predictions
from levelfield.longcontext.bill import Bill
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.pace import PACE
from levelfield.longcontext.predictions import PREDICTIONS
from levelfield.longcontext.survey import ANATOMY
from levelfield.pretrained import LanguageModel, memory
from levelfield.ruler import Needle, Sample, Tracking
from levelfield.runs import claims
from levelfield.runs.claims import holder
from levelfield.runs.lease import DONE
from levelfield.spec import UserError

EVALUATIONS = (
    Evaluation((Tracking(),), (600, 1200), count=3, seed=1),
    Evaluation((Needle(haystack="noise"),), (520,), count=1, depths=(0.0, 1.0)),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    flat_files.write_model(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "POLL_S", 0.02)
    monkeypatch.setattr(blocks, "SIZE", 2)
    monkeypatch.setattr(claims, "_STOP", threading.Event())
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of all samples that a model is asked."""
    keys: list[str] = []
    given = runner.answered

    def noting(model: LanguageModel, tokenizer: object, task: object, samples: Sequence, **more: object):
        keys.extend(sample.key for sample in samples)
        return given(model, tokenizer, task, samples, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "answered", noting)
    return keys


def named(folder: Path) -> Named:
    return Named(str(folder / "tiny"), folder / "runs")


def planned(folder: Path, to: Path, evaluations: Sequence[Evaluation] = EVALUATIONS) -> Job:
    to.mkdir(parents=True, exist_ok=True)
    return plan(named(folder), named(folder).text(), evaluations, to)


def execute(job: Job, copies: int) -> Outcome:
    return Driver(job, Pool(Threads(), copies), Heard()).execute(list(job.asked().blocks))


def joined(folder: Path, job: Job, to: Path, evaluations: Sequence[Evaluation] = EVALUATIONS) -> bytes:
    runner.collect(named(folder).text().tokenizer, evaluations, to, job.ask())
    return (to / PREDICTIONS).read_bytes()


def test_one_copy_and_two_give_the_same_file_with_the_answers_of_a_single_process(
    folder: Path, asked: list[str]
) -> None:
    written = {}
    for copies in (1, 2):
        to = folder / f"by{copies}"
        job = planned(folder, to)
        assert len(job.asked().blocks) == 3  # two samples and the third; and one at two depths
        assert len(execute(job, copies).done) == 3
        written[copies] = joined(folder, job, to)
    assert written[1] == written[2]
    alone = folder / "alone"
    alone.mkdir()
    model, tokenizer, *_ = named(folder).load("cpu")
    left = runner.evaluate(model, tokenizer, EVALUATIONS, alone)
    assert {one.task for one in left} == {"vt"}  # 600 tokens do not hold its example
    found, wanted = predictions(folder / "by2"), predictions(alone)
    assert sorted(found, key=lambda p: p.place) == sorted(wanted, key=lambda p: p.place)
    assert len({p.text for p in found}) > 1
    assert len(asked) == 3 * len(wanted)


def test_a_copy_that_is_asked_to_stop_leaves_its_answers_and_none_is_asked_twice(
    folder: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    to = folder / "stopped"
    job = planned(folder, to)
    (unit, *_) = job.asked().blocks
    copy = job.loaded()
    claims.stop()
    assert copy.attempt(unit) == ("busy", "")
    claims._STOP.clear()
    assert len(blocks.collected(job.out)) == 1
    bill = Bill.of(named(folder).text().tokenizer, EVALUATIONS, to, more=answered(named(folder), to))
    assert (bill.questions, bill.answered) == (8, 1)
    again = planned(folder, to)
    assert again.path == job.path  # nothing that is asked has changed, so workers in a queue may go on with it
    (first,) = blocks.collected(job.out)
    asked.clear()
    execute(again, 1)
    assert first not in asked and len(set(asked)) == len(asked)
    wanted = planned(folder, folder / "undisturbed")
    execute(wanted, 1)
    assert joined(folder, again, to) == joined(folder, wanted, folder / "undisturbed")
    asked.clear()
    more = planned(folder, to, [replace(EVALUATIONS[0], count=4)])
    execute(more, 1)
    assert len(asked) == 1


def test_a_command_without_copies_goes_on_where_copies_were_killed(folder: Path) -> None:
    """Before their answers were joined; once they are, it asks in its own process."""
    choice, runs = ruler_command.ModelChoice(str(folder / "tiny")), folder / "runs"
    place, cluster = ruler_copies.PlaceOptions(), ruler_copies.ClusterOptions()
    answers = ruler_command.folder_of(choice, runs)
    answers.mkdir(parents=True)
    model = ruler_command.named_model(choice, runs)
    job = plan(model, model.text(), EVALUATIONS, answers)
    assert isinstance(ruler_copies.answerer(place, cluster, choice, runs), ruler_command.Here)
    execute(job, 1)
    before = {one.key for one in answered(model, answers)}
    by = ruler_copies.answerer(place, cluster, choice, runs)
    assert before and isinstance(by, ruler_copies.Copies) and by.placement.jobs == 1


def test_copies_note_their_pace_and_what_the_model_consists_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = folder / "noted"
    to.mkdir()
    monkeypatch.setattr(ruler_copies.Copies, "_asked", lambda _, job: execute(job, 1))
    copies = ruler_copies.Copies(named(folder), "cpu", HERE, threads=1)
    for _ in range(2):  # the second time nothing is left to ask, and nothing is timed
        assert copies.answer(EVALUATIONS[1:], to, pytest.fail)
        assert json.loads((to / PACE).read_text())["questions"] == 2
    assert json.loads((to / ANATOMY).read_text()).keys() == {"layers", "parameters"}


def test_a_command_that_is_given_again_while_others_answer_has_the_same_job(folder: Path, asked: list[str]) -> None:
    job = planned(folder, folder / "to")
    units = list(job.asked().blocks)
    assert job.loaded().attempt(units[0]) == ("done", "")
    again = planned(folder, folder / "to")
    assert again == job and again.order(units).fingerprint == again.loaded().fingerprint
    asked.clear()
    assert again.loaded().attempt(units[0]) == ("done", "")
    assert asked == []


def test_a_question_that_an_earlier_block_has_is_not_asked_again(folder: Path, asked: list[str]) -> None:
    few = Evaluation((Tracking(),), (1200,), count=3, seed=1)
    evaluations = (few, replace(few, count=5))
    job = planned(folder, folder / "to", evaluations)
    assert len(execute(job, 1).done) == 4  # of indices 0 and 1; 2; 3 without 2; 4
    assert len(asked) == len(set(asked)) == 5
    assert joined(folder, job, folder / "to", evaluations).count(b"\n") == 5


def test_answers_are_on_the_disk_before_their_block_is_complete(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut could leave `done.json` beside fewer of them, and no command would ask for the others again."""
    synced: dict[int, bool] = {}
    job = planned(folder, folder / "to", EVALUATIONS[1:])

    def sync(number: int) -> None:
        synced[os.fstat(number).st_ino] = any(job.out.glob(f"*/{DONE}"))

    monkeypatch.setattr(os, "fsync", sync)
    execute(job, 1)
    (part,) = job.out.glob("*/part-*.jsonl")
    assert synced[part.stat().st_ino] is False


def test_a_damaged_answer_is_named(folder: Path) -> None:
    (folder / "vt").mkdir()
    (folder / "vt" / "part-1.jsonl").write_text('{"key": "a"}\n')
    with pytest.raises(UserError, match=r"part-1\.jsonl is damaged .*: remove it and run again"):
        blocks.collected(folder)


def ruler(*words: str) -> Path:
    """The command, and the folder of its answers."""
    where = answers_of(words)
    app.main(["ruler", "tiny", "--tasks", "vt", "--device", "cpu", "--runs-dir", str(where.parents[1]), *words])
    return where


def answers_of(words: Sequence[str]) -> Path:
    """A folder of its own for each list of words."""
    return Path("-".join(word.strip("-") for word in words)) / "ruler" / "tiny"


def statuses(folder: Path) -> dict[str, int]:
    """The statuses of rows, each with its number of samples."""
    return {row["status"]: row["n"] for row in read_rows(folder / "rows.jsonl")}


def test_two_copies_in_processes_of_their_own_answer_as_the_one_in_this_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "SIZE", 32)  # which the processes have, too
    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    asked = ("--lengths", "1200,1300", "--count", "1", "--threads", "1")
    alone, both = ruler(*asked), ruler(*asked, "--copies", "2")
    assert threads == [1]
    assert (both / PREDICTIONS).read_bytes() == (alone / PREDICTIONS).read_bytes()
    assert len(list(both.glob("shards/*/*/done.json"))) == 2
    assert (both / "anatomy.json").read_bytes() == (alone / "anatomy.json").read_bytes()


def test_samples_of_a_block_that_failed_are_left_out_of_a_partial_row_until_they_are_answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = runner.answered

    def failing(model: LanguageModel, tokenizer: object, task: object, samples: Sequence[Sample], **more: object):
        if any(sample.index == 2 for sample in samples):
            raise UserError("the GPU is full")
        return given(model, tokenizer, task, samples, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(placements, "engine", lambda *_: Pool(Threads(), 2))
    monkeypatch.setattr(runner, "answered", failing)
    asked = ("--lengths", "1200", "--count", "3", "--copies", "2")
    with pytest.raises(SystemExit) as stop:
        ruler(*asked)
    assert stop.value.code == 1
    assert "1 of 2 blocks of questions are not answered: the GPU is full" in capsys.readouterr().out
    where = answers_of(asked)
    assert statuses(where) == {"partial": 2}
    (left,) = read_rows(where / "left_out.jsonl")
    assert left["index"] == 2 and left["why"].startswith("No copy of the model answered")
    monkeypatch.setattr(runner, "answered", given)
    assert statuses(ruler(*asked)) == {"ok": 3}


def test_workers_that_have_a_part_of_a_gpu_share_its_memory() -> None:
    assert [ruler_copies.shared_by(gpus) for gpus in (0.0, 0.5, 0.3, 1.0, 4.0)] == [1, 2, 4, 1, 1]


def test_too_few_gpus_for_a_copy_are_told_by_the_option_that_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levelfield.run.pick_device", lambda name: torch.device(name))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert local.devices("cuda", 2, 2, "--spread") == ["cuda:0", "cuda:0"]
    with pytest.raises(UserError, match="--spread 4 takes as many GPUs, and here are 2 from cuda on: lower it"):
        local.devices("cuda", 1, 4, "--spread")


def test_a_job_travels_as_text_and_machines_with_other_files_refuse_it(folder: Path) -> None:
    job = replace(planned(folder, folder / "to"), device="cuda", threads=3, copies=2, spread=4)
    assert jobs.read(job.to_json()) == job
    assert job.asked().evaluations == EVALUATIONS
    assert replace(job, copies=1).identity != job.identity  # which would take more memory
    others = planned(folder, folder / "to", EVALUATIONS[:1])
    assert others.out == job.out and others.identity != job.identity  # so that both may have workers
    (name, block), *_ = job.asked().blocks.items()
    tokenizer = named(folder).text().tokenizer
    assert [s.index for s in block.samples(EVALUATIONS, tokenizer, name)] == [0, 1]
    with pytest.raises(UserError, match="give all machines the same files"):
        block.samples([replace(EVALUATIONS[0], seed=2)], tokenizer, name)


def test_words_that_cannot_be_are_one_sentence_before_anything_is_loaded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, why in (
        (("--copies", "0"), "--copies 0 is out of range: give a whole number from 1 to"),
        (("--devices", "0"), "--devices 0 is out of range: give a whole"),  # another name of the same option
        (("--gpus", "1"), "--gpus is not for --engine local"),
        (("--engine", "rya", "--dry-run"), "There is no engine 'rya'"),
        (("--engine", "vllm"), "vllm serve tiny --tensor-parallel-size N, and then levelfield ruler http://127.0.0.1"),
        (("--spread", "2", "--device", "cpu"), "A model is spread over GPUs, and cpu is none: leave out --spread."),
        (("--spread", "2", "--engine", "slurm"), "A copy over 2 GPUs needs a worker that has them: give --gpus 2."),
        (("--spread", "4", "--engine", "ray", "--gpus", "1", "--device", "cuda"), "give --gpus 4."),
    ):
        with pytest.raises(SystemExit) as stop:
            app.main(["ruler", "tiny", "--lengths", "520", "--tasks", "niah_single_1", "--count", "1", *words])
        shown = capsys.readouterr().err
        assert stop.value.code == 2
        assert why in shown and shown.count("\n") == 1, shown


def test_a_dry_run_refuses_lengths_and_sizes_that_asking_would_refuse(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("ruler", "tiny", "--device", "cpu", "--lengths", "520", "--tasks", "niah_single_1", "--count", "2")
    for owner, name, said, why in (
        (ruler_command, "max_length", 500, "tiny takes at most 500 tokens and cannot be evaluated at a length of 520"),
        (memory, "total", 1000, "of them weights) with a question of 520 tokens, and cpu has 0.0 MB"),
    ):
        with monkeypatch.context() as here, pytest.raises(SystemExit):
            here.setattr(owner, name, lambda *_, said=said: said)
            app.main([*words, "--dry-run"])
        shown = capsys.readouterr()
        assert why in shown.err and "Time:" not in shown.out
    app.main([*words, "--dry-run"])
    assert "2 questions." in capsys.readouterr().out and not (folder / "runs").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_copy_and_a_killed_command_lose_nothing_and_ask_nothing_twice(folder: Path) -> None:
    def command(runs: str, copies: int) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
        words = ["ruler", "tiny", "--tasks", "vt", "--lengths", "1200", "--count", "130", "--device", "cpu"]
        words += ["--copies", str(copies), "--threads", "1", "--runs-dir", runs]
        return subprocess.Popen(
            [sys.executable, "-m", "levelfield", *words],
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def blocks_with(name: str) -> list[Path]:
        return [path.parent for path in folder.glob(f"runs/ruler/tiny/shards/*/*/{name}")]

    first = command("runs", 2)
    wait_for(lambda: any(holder(path) for path in blocks_with(claims.FOLDER)), 200)
    (entry, *_) = (found for path in blocks_with(claims.FOLDER) if (found := holder(path)))
    os.kill(entry.owner.pid, signal.SIGKILL)
    wait_for(lambda: len(blocks_with("done.json")) >= 2, 200)
    first.kill()
    first.communicate()
    assert not (folder / "runs" / "ruler" / "tiny" / PREDICTIONS).exists()
    said, _ = command("runs", 2).communicate(timeout=400)
    assert "130 answers" in said, said
    parts = [path.read_text() for path in folder.glob("runs/ruler/tiny/shards/*/*/part-*.jsonl")]
    keys = [json.loads(line)["key"] for text in parts for line in text.splitlines()]
    assert len(set(keys)) == len(keys) == 130
    said, _ = command("undisturbed", 2).communicate(timeout=400)
    assert "130 answers" in said, said
    files = [folder / runs / "ruler" / "tiny" / PREDICTIONS for runs in ("runs", "undisturbed")]
    assert files[0].read_bytes() == files[1].read_bytes()
