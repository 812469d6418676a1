"""Are built-in state spaces better than self-pretraining? Amos et al. (2025), table 2: SPADE and MEGA from scratch
beside the rotary Transformer, from scratch and self-pretrained; and a language model, Pythia 70M, from random and from
its published weights.

    levelfield run amos2025_table2_others --effort minutes
    levelfield report amos2025_table2_others

The runs of the rotary Transformer are those of `amos2025_table2`: whoever has run that study has them already. SPADE
and MEGA have recipes of their own (`recipes/amos2025.py`, of which nothing is printed, and `recipes/ma2023.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from levelfield.mixers.attention import Attention
from levelfield.mixers.mega import Mega
from levelfield.mixers.spade import SPADE
from levelfield.presets import efforts
from levelfield.probes.slices import Slices
from levelfield.protocols import finetuned, scratch
from levelfield.recipes import amos2025, ma2023
from levelfield.recipes.amos2025 import TransformerSetting
from levelfield.report.decisions import Every, difference
from levelfield.report.verdicts import Claim, Finding, Key, Table, ahead, told
from levelfield.spec import Effort, Model, Protocol, Published, ReportView, Row, Run, Study, Task
from levelfield.studies import _deviations as same
from levelfield.studies._amos2025 import LRA, Arm, findings_by_task, protocols, runs_of, task
from levelfield.studies._pythia import checkpoint
from levelfield.tasks.image import Image
from levelfield.tasks.pathfinder import Pathfinder

TASKS: dict[Effort, tuple[str, ...]] = {
    "smoke": ("listops",),
    "minutes": ("listops", "pathfinder"),
    "overnight": ("listops", "pathfinder", "image"),
    "hours": ("listops", "pathfinder", "text", "retrieval", "image"),
    "paper": LRA,
}
TRANSFORMER = "transformer_rotary"
AUGMENTED = ("spade", "mega")
PYTHIA, PYTHIA_TRAINED = "pythia_70m_random", "pythia_70m_pretrained"
LEVEL = 7.0
"""Points ahead that still count as level. Printed are at most 5.0 after self-pretraining (MEGA on PathX) and at least
8.9 from scratch (SPADE on Retrieval)."""


def runs(effort: Effort) -> tuple[Run, ...]:
    """Task by task: the Transformer with both protocols, then the other models from scratch, at every seed."""
    return runs_of(_arms, TASKS[effort], effort)


def _arms(name: str, effort: Effort) -> Iterator[Arm]:
    data = task(name, effort)
    rotary = amos2025.transformer_rotary(name, effort)
    model = rotary.shape.model(Attention(rotary.heads, rotary="per_head", block=rotary.block), TRANSFORMER)
    yield from (Arm(data, model, protocol) for protocol in protocols(rotary))
    yield Arm(data, *_spade(name, effort))
    yield Arm(data, *_mega(name, data, effort, rotary))
    yield from (Arm(as_symbols(data), model, protocol) for model, protocol in _pythia(name, effort))


def as_symbols(data: Task) -> Task:
    """The task as a language model reads it: a symbol for each gray value of a picture; texts are symbols already."""
    return replace(data, tokenised=True) if isinstance(data, Image | Pathfinder) else data


def _spade(name: str, effort: Effort) -> tuple[Model, Protocol]:
    """A frozen state-space layer beside local attention at the bottom, and local attention alone above it."""
    setting = amos2025.spade(name, effort)
    bottom = SPADE(heads=setting.heads, window=setting.window, dt_min=setting.dt_min, frozen=True)
    model = setting.shape.model(bottom, "spade")
    above = (replace(bottom, state=0),) * (setting.shape.depth - 1)
    return replace(model, mixers=(bottom, *above)), scratch(setting.recipe)


def _mega(name: str, data: Task, effort: Effort, rotary: TransformerSetting) -> tuple[Model, Protocol]:
    """Below `paper`, MEGA has the steps of the Transformer from scratch; biases always reach the longest sequence."""
    setting = ma2023.mega(name, effort)
    bound = max(setting.bound, data.max_length)
    mixer = Mega(keys=setting.keys, values=setting.values, attention=setting.attention, bound=bound)
    recipe = setting.recipe
    if effort != "paper":
        recipe = replace(recipe, budget=rotary.scratch.budget, validate_every=rotary.scratch.validate_every)
    return setting.shape.model(mixer, "mega"), scratch(recipe)


def _pythia(name: str, effort: Effort) -> Iterator[tuple[Model, Protocol]]:
    """A GPT-NeoX decoder: attention and feed-forward side by side, and a quarter of each head rotated.

    It starts at random and, at `paper`, from the published weights too, which are of the printed size alone.
    """
    setting = amos2025.pythia(name, effort)
    mixer = Attention(setting.heads, rotary="per_head", rotary_width=setting.rotary_width)
    yield setting.shape.model(mixer, PYTHIA, causal=True), scratch(setting.recipe)
    if effort == "paper":
        yield setting.shape.model(mixer, PYTHIA_TRAINED, causal=True), finetuned(checkpoint(name), setting.recipe)


def verdict(rows: Sequence[Row]) -> str:
    """Task by task, what is shown beyond the noise of seeds and test examples, and what is only seen."""
    return told(findings(rows), "Nothing can be said: no task has all of its cells.")


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Finds, for every task with all of its cells, whether SPADE and MEGA from scratch are more than LEVEL points ahead
    of the Transformer from scratch, and at most so many ahead of the self-pretrained one. Pythia is only reported."""
    return findings_by_task(rows, _claim)


def _claim(name: str, table: Table) -> Claim | None:
    """None where a cell is missing."""
    before, after = Key(name, TRANSFORMER, "scratch"), Key(name, TRANSFORMER, "spt_masked")
    keys = {model: Key(name, model, "scratch") for model in AUGMENTED}
    if not all(key in table.cells for key in (before, after, *keys.values())):
        return None
    plain, pretrained, scatter = table.cells[before], table.cells[after], table.scatter(name)
    built_in = {model: table.cells[key] for model, key in keys.items()}
    leads = [
        f"{model} from scratch, {arm}, is {ahead(difference(arm, plain))} of the first and "
        f"{ahead(difference(arm, pretrained))} of the second"
        for model, arm in built_in.items()
    ]
    facts = f"On {name}, {TRANSFORMER} has {plain} from scratch and {pretrained} self-pretrained; {'; '.join(leads)}."
    unable = [
        model for model, key in {**keys, f"{TRANSFORMER} self-pretrained": after}.items() if not table.learnt(key)
    ]
    if unable:
        return Claim(
            None, f"{facts} {' and '.join(unable)} cannot be shown to beat the best simple rule, {table.rule(name)}."
        )
    parts = [difference(arm, plain, LEVEL, scatter) for arm in built_in.values()]
    parts += [difference(pretrained, arm, -LEVEL, scatter) for arm in built_in.values()]
    return Claim(Every(tuple(parts)), facts)


study = Study(
    name="amos2025_table2_others",
    claim=(
        "What SPADE and MEGA gain by building state spaces into a Transformer, a plain rotary Transformer gains by "
        "self-pretraining: from scratch they are more than 7 points ahead of it, and at most 7 after it has been "
        "self-pretrained."
    ),
    runs=runs,
    published=(Published("amos2025", "2"),),
    views=(
        ReportView("compare", "Beside the printed numbers"),
        ReportView("slices", "Where the score comes from"),
        ReportView("training", "Training curves"),
    ),
    probes=lambda run: (Slices(),),
    verdict=verdict,
    search=efforts.SEARCH,
    tuned_at=("overnight",),
    deviations=(
        "The scores of SPADE and MEGA are quoted by the paper from their own papers; here both are trained.",
        "No size and no recipe of SPADE on these tasks is public: it has those of the paper's rotary Transformer, a "
        "window of 128 steps, and a state-space layer that stays as it starts, as the paper describes it.",
        "MEGA has the recipe of its code, but for a warm-up of power two on PathX, the initial values of embeddings "
        "and feed-forwards, a hidden layer of GELU in the head (ReLU here), and the order of documents on Retrieval. "
        "Its moving average runs over the whole sequence, where the code cuts its kernel after 1,024 steps (4,096 on "
        "PathX), and dropout acts on its whole branch.",
        "MEGA reads the characters and gray values of this paper's tasks, where its code reads bytes and other gray; "
        "its biases reach as far as our longest sequences do, which on Text is 94 steps farther.",
        "Pythia 70M starts from its published weights at paper alone, as there is no smaller one. Of its recipe, rates "
        "and batches are not public (each recipe's `assumed` names them), and the configuration of PathX names another "
        "model: there it has the recipe of Pathfinder. On ListOps its cosine falls over all epochs, where the "
        "configuration has a horizon of 2,000 steps; and the paper's cap of two days on four GPUs does not end it. The "
        "weights are those of `pythia-70m-deduped`.",
        "From published weights, a symbol has the embedding of its text, and the mean of several where that text has "
        "several tokens: so an operator of ListOps is one step here, where the paper's code feeds its two tokens.",
        "Pythia reads a symbol for each gray value, and its embedding has rows for the symbols of the task alone; "
        "random initial values are those of all our models.",
        "SPADE and MEGA are not run on PathX-256, where nothing is printed of them, nor the Transformer and Pythia, "
        "which are printed as infeasible.",
        "The deviations of amos2025_table2 hold for the rotary Transformer, and those on the data of ListOps, Text, "
        "Retrieval and Pathfinder and on padding for all models.",
        same.ONE_RUN,
        "Below paper, all other models from scratch get the steps of the Transformer's pretraining and fine-tuning "
        "together.",
        same.HOURS,
        "Overnight and below shrink models and tasks (ListOps of 21 to 199 tokens, easy Pathfinder of 16 x 16 pixels, "
        "Image of 8 x 8): printed numbers beside it belong to harder tasks and larger models.",
    ),
)
