"""Executes one run, from its frozen value to rows and a ledger on disk.

    execute(run, store.directory(out, run), data_root)

Phases are trained in turn, each selected on validation; the test split is read once, after the last selection. A run
can be killed at any moment: called again, it continues from the last checkpoint and, on a CPU with the same number of
threads, ends with the same bytes. With another number, or on another device, sums are taken in another order, and the
ledger says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from levelfield._version import __version__
from levelfield.data import download, prepared
from levelfield.data.batches import SplitOnDevice
from levelfield.evaluate import SplitScores, evaluate
from levelfield.files import check_name, disk_errors, write_json, write_rows
from levelfield.model import Network
from levelfield.objectives import Trainable, heads
from levelfield.runs import checkpoint, claims, flops, sound, store
from levelfield.runs import rows as scored
from levelfield.runs.claims import Lease
from levelfield.runs.compiled import check_compiled, compile_blocks
from levelfield.runs.flops import Meter
from levelfield.runs.journal import Journal, ProgressFile, resumed
from levelfield.runs.ledger import (
    all_kernels,
    new_kernels,
    new_peak_memory,
    parameters,
    peak_memory,
    state_size,
    total,
)
from levelfield.runs.numerics import check_device, check_model, computing
from levelfield.runs.phases import last_objective, resolve, trainable
from levelfield.runs.processes import ALONE, Group
from levelfield.runs.rows import Splits
from levelfield.spec import (
    SPLITS,
    Probe,
    Row,
    Run,
    Signal,
    SplitName,
    UserError,
    derive_seed,
    describe,
)
from levelfield.spec.contents import checksum
from levelfield.spec.memory import fitting
from levelfield.train import State, copied, kept, make_optimizer, train

FETCH_EVERY = 16  # steps of a GPU between fetches of the loss; a CPU waits for no fetch

PhaseCosts = Sequence[dict[str, Any]]  # what each phase cost, as the ledger has it


def check(run: Run) -> None:
    """Raises UserError, before any compute, for a combination that cannot work."""
    model, phases = run.model, run.protocol.phases
    if model.positions == "learned" and model.max_positions is None:
        raise UserError("Learned positions need a table size: set Model(max_positions=...).")
    for kind, name in (("task", run.task.name), ("model", model.label), ("protocol", run.protocol.name)):
        check_name(kind, name)
    if phases and phases[-1].recipe.budget.value == 0:  # an earlier phase may be skipped in this way
        raise UserError(f"The last phase of {run.protocol.name} trains for 0 steps: give it a budget.")
    if run.protocol.causal and not run.model.causal:
        raise UserError(f"{run.protocol.name} predicts the next step and needs a causal model: set Model(causal=True).")
    if run.protocol.causal and run.task.max_length < 2:
        raise UserError(f"No step of {run.task.name} has a next one, which {run.protocol.name} predicts: leave it out.")
    if run.model.pair != "concat" and run.task.documents != 2:
        raise UserError(f"{run.task.name} has no pairs of documents: leave pair='concat'.")
    for mixer in run.model.mixers:
        mixer.check_direction(run.model.causal)
    bound, longest = run.model.max_length, max(task.max_length for task in (run.task, *run.trained_on))
    if bound is not None and bound < longest:
        raise UserError(
            f"{run.model.label} takes {bound} steps but {run.task.name} has up to {longest}: choose a shorter task, or "
            "raise its max_length."
        )
    check_model(run.numerics, run.model)
    for number, phase in enumerate(run.protocol.phases):
        heads(trainable(phase), run.task)
        if phase.recipe.batch % (parts := run.numerics.parts):
            names = " times ".join(name for name in ("accumulate", "nproc") if name in run.numerics.changes)
            raise UserError(f"A batch of {phase.recipe.batch} has no {parts} equal parts: let {names} divide it.")
        if phase.start != "fresh" and number == 0 and not (run.protocol.weights or run.protocol.foreign):
            raise UserError("The first phase starts from nothing: use start='fresh', or give the protocol weights.")
        if phase.start == "whole" and number and phases[number - 1].objective != phase.objective:
            raise UserError("A phase of another objective has other heads: use start='previous'.")
        if phase.augment and run.task.augmentation is None:
            raise UserError(f"Task {run.task.name} has no augmentation; choose a protocol without it.")


def execute(
    run: Run,
    where: Path,
    data_root: Path,
    device: str = "auto",
    probes: Sequence[Probe] = (),
    *,
    tested: bool = True,
    claim: Lease | None = None,
    group: Group = ALONE,
) -> None:
    """Does what is left of a run in its folder, then measures the probes that are not there yet.

    where: the folder of the run. data_root: that of prepared data. device: as of `pick_device`. tested: False for a
    trial, which is scored on validation alone and leaves no weights. claim: the caller's on this run; without one, the
    run is claimed here. group: the processes that all call this for the run; the first of them claims it and writes.
    They are as many as its numerics say where training is left; probes are measured by the first one alone, so a
    complete run needs no others, and no device that can train it.
    Raises UserError as `check` does, where data, disk or device fail, and where another process has the run; Lost where
    another one has taken it over.
    """
    check(run)
    target = pick_device(device)
    if not store.complete(where):
        _check_place(run, target, group)
    with claims.claimed(where, claim, here=group.leads) as mine, computing(run.numerics):
        names = [probe.name for probe in probes]
        work = _Execution(run, where, data_root, device=target, tested=tested, claim=mine, group=group, probes=names)
        if group.agreed(not store.complete(where)):
            work.train_all()
        elif mine is not None:
            checkpoint.clear(where)  # where a kill came between the end of the run and their removal
        for probe in probes if group.leads else ():
            if not store.probe_file(where, probe).exists():
                work.progress.write(state=f"probing {probe.name}")
                net = load_net(run, where).to(target)
                rows = probe.measure(net, run, lambda task: prepared.load(task, data_root))
                store.write_probe(where, probe, [scored.named(run, row) for row in rows])
        work.progress.write(state="done")


def _check_place(run: Run, device: torch.device, group: Group) -> None:
    """Raises UserError where the run cannot be trained by these processes or on this device."""
    if group.size != (nproc := run.numerics.nproc):
        raise UserError(f"{run.id} is for {nproc} processes, and here is {group.size}: `levelfield run` starts them.")
    check_device(run.numerics, device)


def pick_device(name: str, *, here: bool = True) -> torch.device:
    """Returns the device of that name; "auto" is the GPU where there is one. Raises UserError for an absent one.

    here: False for a device that another machine has, whose name alone is checked.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if here:
            torch.empty(0, device=device).tolist()  # which "meta", a device without memory, refuses
    except (RuntimeError, AssertionError) as error:
        lacking = here and not torch.cuda.is_available()
        others = "cpu or auto, as there is no GPU here" if lacking else "cpu, cuda or auto"
        raise UserError(f"Device '{name}' cannot be used here: choose {others}.") from error
    return device


def load_net(run: Run, where: Path) -> Network:
    """Returns the trained network of a complete run, on the CPU and in eval mode.

    Raises UserError where the run is not complete, or its weights are not those that were saved.
    """
    if not store.complete(where):
        raise UserError(f"Run {run.id} is not complete in {where.parent}: run its study first.")
    path = store.checked_weights(where)
    net = build_net(run, last_objective(run))
    try:
        net.load_state_dict(load_file(path))
    except SafetensorError as error:  # where there is no checksum, as in runs of earlier versions
        raise UserError(f"{path} is damaged ({error}): remove {where} and run again.") from error
    except RuntimeError as error:
        raise UserError(f"{path} does not fit the network of {run.id}: remove {where} and run again.") from error
    return net.eval()


def build_net(run: Run, objective: Trainable) -> Network:
    """Returns a fresh network with the heads of one phase. Its trunk depends on the seed and not on the objective.

    Raises TooLarge where it does not fit into memory.
    """
    flag = objective.masks_inputs and isinstance(run.task.input, Signal)
    given = heads(objective, run.task)
    with fitting(f"{run.model.label} at width {run.model.width:,}"):
        return Network(run.model, run.task.input, given, mask_flag=flag, seed=run.seed, numerics=run.numerics)


@dataclass
class _Execution:
    """One execution of a run; `notes` are what its ledger will say about interruptions."""

    run: Run
    where: Path
    data_root: Path
    device: torch.device
    tested: bool
    claim: Lease | None  # None in all but the first process of a group
    group: Group
    probes: Sequence[str]  # names of those that come after it
    notes: list[str] = field(default_factory=list)

    @property
    def progress(self) -> ProgressFile:
        return ProgressFile(self.run, self.where, told=self.group.leads)

    @property
    def machine(self) -> dict[str, Any]:
        """What the run is computed by here, as the ledger has it."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        versions = {"torch": torch.__version__, "version": __version__}
        return {"device": name, "threads": torch.get_num_threads(), **versions}

    def train_all(self) -> None:
        """Trains the phases that are left, scores the weights that the last one leaves, and writes what was found."""
        if self.claim is not None:
            self.claim.look()  # or what is half written may be another owner's
            checkpoint.remove_unfinished(self.where)
            write_json(self.where / store.SPEC, describe(self.run))
        self.progress.write(state="preparing data")
        new_kernels()  # those of an earlier run in this process are not ours
        new_peak_memory(self.device)
        splits = prepared.load(self.run.task, self.data_root)
        saved, complaints = checkpoint.latest(self.where)
        at = (saved.phase, saved.numbers["step"]) if saved else None
        if self.group.agreed(at) != at:
            raise UserError(
                f"The processes of {self.run.id} see different files in {self.where}: give them one folder."
            )
        self.notes += complaints
        costs: list[dict[str, Any]] = list(saved.extra["costs"]) if saved else []
        self.notes += resumed(saved, self.machine) if saved else []
        weights = self._given_weights()
        for number in range(saved.phase if saved else 0, len(self.run.protocol.phases)):
            resume = saved if saved and saved.phase == number else None
            previous = weights if resume is None else None
            weights, cost = self._train_phase(number, self._of_phase(number, splits), previous, resume, costs)
            costs.append(cost)
        net, objective = self._final_net(weights)
        scores = self._test(net, objective, splits)
        if self.claim is not None:
            rows = self._rows(objective, splits, scores, costs)
            self._write(net, rows, scores.get("test"), costs, self.claim)
            checkpoint.clear(self.where)
            checkpoint.remove([self.where / store.ERROR])  # why it failed before

    def _of_phase(self, number: int, splits: Splits) -> Splits:
        """Returns what a phase trains on. splits: those of the run's own task."""
        task = self.run.trained_on[number]
        return splits if task == self.run.task else prepared.load(task, self.data_root)

    def _train_phase(
        self,
        number: int,
        splits: Splits,
        previous: Mapping[str, Tensor] | None,
        resume: checkpoint.Saved | None,
        costs: PhaseCosts,
    ) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
        """Trains one phase, and returns the weights that it leaves and what it cost.

        previous: the weights that the phase before it left. resume: a checkpoint in this phase. costs: of the phases
        before it.
        """
        phase = self.run.protocol.phases[number]
        objective, seed = trainable(phase), derive_seed(self.run.seed, "phase", number)
        task = self.run.trained_on[number]
        net = build_net(self.run, objective)
        if previous is not None and phase.start != "fresh":
            (net.load_whole if phase.start == "whole" else net.load_trunk)(previous)
        examples = splits["train"].subset(phase.fraction)
        counted, how = flops.Costs.of(net, examples.lengths, objective, task), self.run.numerics
        self.notes += [counted.uncounted] if counted.uncounted and counted.uncounted not in self.notes else []
        meter = Meter(counted, examples, phase.recipe, seed, how)
        rank = self.group.rank(net.to(self.device), objective, self.run.task.input)
        split, held_out = SplitOnDevice(examples, self.device), SplitOnDevice(splits["val"], self.device)
        state = State(net, make_optimizer(net, phase.recipe, net.rules()), best=copied(net))
        plan = resolve(phase, task, meter.batches, split.mean_length, meter.per_step.dispatched)
        held = self.device.type != "cpu" and state.optimizer.defaults["fused"]
        fetch_every = FETCH_EVERY if held else 1
        plan = replace(plan, accumulate=how.accumulate, by_length=how.by_length, fetch_every=fetch_every, rank=rank)
        compile_blocks(net, ragged=not split.equal or phase.recipe.bucketed)
        if resume is not None:
            resume.restore(state, self.group)
        if net.compiled and state.step < plan.steps:
            apart = check_compiled(state, plan, split, seed)
            self.notes += [] if state.step or apart in self.notes else [apart]
        journal = Journal(
            self.progress,
            number=number,
            plan=plan,
            before=resume.extra if resume else {},
            costs=costs,
            notes=self.notes,
            machine=self.machine,
            group=self.group,
        )
        self.notes += journal.open(state.step, self.claim)

        def validate() -> float:
            return self._score(net, held_out, objective, batch=2 * phase.recipe.batch, seed=seed).mean

        for metrics in train(state, plan, split, seed, validate):
            if self.claim:
                self.claim.check()
            journal.note(state, metrics)
        weights = self.group.gathered(kept(state, rank), everywhere=True)
        return weights, journal.close(state, meter, phase)

    def _given_weights(self) -> Mapping[str, Tensor] | None:
        """Returns the weights that the protocol starts from, if any. Raises UserError where they have changed."""
        protocol = self.run.protocol
        if protocol.foreign is not None:
            folder = download.held(protocol.foreign, prepared.downloads(protocol.foreign, self.data_root))
            return protocol.foreign.trunk(folder, self.run.model)
        if protocol.weights is None:
            return None
        path = Path(protocol.weights)
        if not path.is_file():
            raise UserError(f"No weights at {path}: put the file back or give another path.")
        if checksum(path) != protocol.weights_sha256:
            raise UserError(f"{path} has changed since this run was defined: define the run again.")
        return load_file(path)

    def _final_net(self, weights: Mapping[str, Tensor] | None) -> tuple[Network, Trainable]:
        """Returns the network of the last phase with the selected weights, and the objective that it is scored by."""
        objective = last_objective(self.run)
        net = build_net(self.run, objective)
        if weights is not None:
            net.load_whole(weights)
        return net.to(self.device), objective

    def _test(self, net: Network, objective: Trainable, splits: Splits) -> dict[SplitName, SplitScores]:
        """Scores validation and, unless this is a trial, the test split, which is read here alone and once."""
        self.progress.write(state="testing" if self.tested else "validating")
        phases, names = self.run.protocol.phases, SPLITS[1:] if self.tested else SPLITS[1:2]
        batch, seed = 2 * phases[-1].recipe.batch if phases else 64, self.run.seed
        score = partial(self._score, net, objective=objective, batch=batch, seed=seed)
        groups = {"test": self.run.task.test_groups}
        return {
            name: replace(score(SplitOnDevice(splits[name], self.device)), groups=groups.get(name)) for name in names
        }

    def _score(self, net: Network, split: SplitOnDevice, objective: Trainable, *, batch: int, seed: int) -> SplitScores:
        """Scores a split, of which every process of the run takes its turns."""
        spec, turn = self.run.task.input, (self.group.number, self.group.size)
        return self.group.whole(
            evaluate(self.group.alike(net), split, objective, spec, batch=batch, seed=seed, turn=turn)
        )

    def _rows(
        self, objective: Trainable, splits: Splits, scores: Mapping[SplitName, SplitScores], costs: PhaseCosts
    ) -> list[Row]:
        stopped = "diverged" if any(cost["stopped"] == "diverged" for cost in costs) else ""
        if self.tested:
            ended = [cost["stopped"] for cost in costs]
            return scored.rows(self.run, objective, splits, scores, stopped) + scored.at_cap(self.run, ended)
        return [scored.validation(self.run, objective, scores["val"], stopped)]

    def _write(
        self, net: Network, rows: Sequence[Row], test: SplitScores | None, costs: PhaseCosts, claim: Lease
    ) -> None:
        """Stages the description, weights and the score of every test example, unless this is a trial, then rows, log,
        ledger, and the file that says all is there; and makes them the results of the run, unless it has another
        owner."""
        staging = claim.staging
        write_json(staging / store.SPEC, describe(self.run))
        if test is not None:
            with disk_errors(self.where):  # safetensors' own writer leaves a file that nobody else may read
                (staging / store.WEIGHTS).write_bytes(save(checkpoint.cpu_copies(net.state_dict())))
            store.write_scores(staging, test.values)
        write_rows(staging / store.ROWS, rows)
        log, lacking = sound.curve(self.where / store.LOG, len(costs))
        if log:
            write_rows(staging / store.LOG, log)
        self.notes += sound.without(self.where / store.LOG, lacking)
        write_json(staging / store.LEDGER, self._ledger(net, costs) | {"claims": claim.count})
        store.conclude(staging, __version__, self.probes)
        claim.commit()

    def _ledger(self, net: Network, costs: PhaseCosts) -> dict[str, Any]:
        how = {"numerics": str(self.run.numerics), "processes": self.group.size, "kernels": all_kernels(costs)}
        machine = {**self.machine, **how, **peak_memory(self.device)}
        state = state_size(self.run.model, self.run.task.max_length) if self.run.model.causal else None
        carried = {} if state is None else {"state": state}
        return {**parameters(net), **carried, **total(costs), **machine, "notes": self.notes, "phases": list(costs)}
