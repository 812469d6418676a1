"""Has the questions of the `ruler` command answered by copies of a model that an engine places.

    levelfield ruler models/llama-7b --device cuda --copies 8
    levelfield ruler models/llama-70b --device cuda --spread 4 --copies 2
    levelfield ruler models/llama-7b --engine slurm --gpus 1 --copies 16 --partition gpu

Copies share blocks of questions (`levelfield.engine.questions`). Their answers are joined in the order of the questions
at the end, so that the file of answers does not depend on how many copies there were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from levelfield.cli import ruler_command, run_screen
from levelfield.cli.arguments import ClusterOptions
from levelfield.cli.console import Console
from levelfield.cli.ruler_command import Answerer, Here
from levelfield.cli.ruler_options import ModelChoice, PlaceOptions
from levelfield.cli.streams import Say
from levelfield.engine import placement as placements
from levelfield.engine import questions
from levelfield.engine.driver import Driver, Outcome
from levelfield.engine.jobs import by_reason
from levelfield.engine.local import cores
from levelfield.engine.models import Named
from levelfield.engine.placement import HERE, Placement
from levelfield.files import disk_errors, read_json
from levelfield.longcontext import model_record, pace, runner
from levelfield.longcontext.answers import stored
from levelfield.longcontext.blocks import collected
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.survey import ANATOMY
from levelfield.spec import UserError


def answerer(place: PlaceOptions, cluster: ClusterOptions, choice: ModelChoice, runs_dir: Path) -> Answerer:
    """Returns the copies that the options ask for, or the one in this process.

    Raises UserError for places that cannot be.
    """
    if place.engine.lower() == "vllm":
        raise UserError(
            f"vLLM is asked as a server: vllm serve {choice.name} --tensor-parallel-size N, and then levelfield ruler "
            "http://127.0.0.1:8000/v1 without --engine (docs/cluster.md)."
        )
    placement = cluster.placement(place.engine, place.copies)
    if placement == replace(HERE, jobs=1) and place.spread == 1 and not _unjoined(choice, runs_dir):
        return Here(choice, runs_dir, place.threads)
    if placement.elsewhere and choice.device.startswith("cuda") and not placement.gpus:
        placement = replace(placement, gpus=float(place.spread))
    threads = place.threads or (1 if placement.elsewhere else max(1, cores() // place.copies))
    named = replace(ruler_command.named_model(choice, runs_dir), spread=place.spread)
    _check_spread(choice, placement, place.spread)
    job = questions.Job(Path(), choice.device, threads, spread=place.spread)
    placements.engine(placement, job, [""])  # or the reason why there is none
    return Copies(named, choice.device, placement, threads)


def _unjoined(choice: ModelChoice, runs_dir: Path) -> bool:
    """Whether copies of the model have answered what is not joined yet, as where they were killed: only copies, or one,
    go on there without asking it again."""
    folder = ruler_command.folder_of(choice, runs_dir)
    known = {one.key for one in stored(folder)}
    return any(one.key not in known for one in questions.answered(ruler_command.named_model(choice, runs_dir), folder))


def _check_spread(choice: ModelChoice, placement: Placement, spread: int) -> None:
    """Raises UserError where there is no GPU here to spread a copy over, and for too few of each worker elsewhere."""
    if spread > 1 and placement.elsewhere and choice.device != "cpu":
        if placement.gpus < spread:
            raise UserError(f"A copy over {spread} GPUs needs a worker that has them: give --gpus {spread}.")
        return
    from levelfield.pretrained.assemble import LoadOptions
    from levelfield.run import pick_device

    if spread > 1:
        LoadOptions(choice.name, str(pick_device(choice.device)), choice.precision, spread)


def shared_by(gpus: float) -> int:
    """Returns how many workers of a cluster are on one GPU, where each has so many, or a part of one."""
    return ceil(1 / gpus) if gpus else 1


@dataclass(frozen=True)
class Copies:
    """Copies of a model, which answer together: a `ruler_command.Answerer`. threads: of each copy."""

    named: Named
    device: str
    placement: Placement
    threads: int

    def answer(self, evaluations: Sequence[Evaluation], folder: Path, say: Say) -> bool:
        """Stores the answers that the folder lacks, and returns whether it has all of them then.

        Raises UserError where no copy can start.
        """
        text = self.named.text()
        model_record.claim(folder, model=text.mark, tokenizer=text.tokenizer.name, precision=self.named.precision)
        with disk_errors(folder, "--runs-dir"):
            planned = questions.plan(self.named, text, evaluations, folder)
        sharing = shared_by(self.placement.gpus)
        job = replace(planned, device=self.device, threads=self.threads, copies=sharing)
        with pace.noted(folder) as watched:
            before = collected(job.out).keys()
            outcome = self._asked(job)
            for key, one in collected(job.out).items():
                watched(one, key not in before)
        for why, blocks in by_reason(outcome.failed, job.out):
            count = f"{len(blocks)} of {len(outcome.failed) + len(outcome.done)}"
            say(f"{count} blocks of questions are not answered: {why}")
        if (job.out / ANATOMY).exists():
            model_record.note_anatomy(folder, **read_json(job.out / ANATOMY))
        with disk_errors(folder, "--runs-dir"), ruler_command.shown_scores(evaluations) as show:
            runner.collect(text.tokenizer, evaluations, folder, job.ask(), show)
        return not outcome.failed

    def _asked(self, job: questions.Job) -> Outcome:
        """Has the questions of a job asked, if there are any."""
        units = list(job.asked().blocks)
        if not units:
            return Outcome((), {})
        engine = placements.engine(self.placement, job, units)
        with run_screen.screen(Console()) as shown:
            return Driver(job, engine, shown).execute(units)
