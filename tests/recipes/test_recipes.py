"""The recipes against what is printed: parameter counts, training lengths, what is shared and what is assumed."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.mixers.dlr import DLR
from levelfield.mixers.gmlp import GMLP
from levelfield.mixers.s4 import S4
from levelfield.mixers.s5 import S5
from levelfield.model import Network
from levelfield.recipes import amos2025, amos2025_figure2, ma2023, miralles2025, smith2023
from levelfield.recipes._shape import Scale, Shape
from levelfield.spec import Block, Duration, Effort, Head, Input, MixerConfig, Recipe, Signal, Tokens, UserError
from levelfield.studies import _miralles2025_baselines as baselines
from levelfield.studies import amos2025_figure2 as amos2025_figure2_study

GRAY, COLOUR = Signal(1, (0.0,), (1.0,)), Signal(3, (0.0,) * 3, (1.0,) * 3)
LISTOPS, SYMBOLS = Tokens(15), Tokens(256)
PAIRED = Tokens(97)  # with <pad> and <mask>, the 99 symbols of the Retrieval vocabulary; two documents an example
CHARACTERS = Tokens(134)  # with <pad> and <mask>, the 136 symbols of the printed Text vocabulary


def parameters(shape: Shape, mixer: MixerConfig, spec: Input, classes: int, documents: int = 1) -> int:
    head = Head("label", classes, "sequence", documents)
    net = Network(shape.model(mixer, "counted"), spec, (head,), mask_flag=False, seed=0)
    return sum(p.numel() for p in net.parameters())


def s4_count(task: str, spec: Input, classes: int) -> int:
    s = amos2025.s4(task)
    documents = 2 if task == "retrieval" else 1
    return parameters(s.shape, S4(copies=s.copies, dt_min=s.dt_min, lr=s.lr), spec, classes, documents)


@pytest.mark.parametrize(
    ("task", "spec", "classes", "printed", "ours_less"),
    [
        ("listops", LISTOPS, 10, 599_690, 2 * 128),  # theirs also has <unk> and <eos>
        ("text", CHARACTERS, 2, 1_323_010, 0),
        ("retrieval", PAIRED, 2, 1_575_938, 0),
        ("image", GRAY, 10, 3_565_834, 0),
        ("scifar", COLOUR, 10, 3_566_858, 0),
        ("pathfinder", GRAY, 2, 1_288_706, 0),
        ("pathx", GRAY, 2, 1_288_706, 0),
    ],
)
def test_s4_has_the_printed_parameters(task: str, spec: Input, classes: int, printed: int, ours_less: int) -> None:
    assert s4_count(task, spec, classes) == printed - ours_less


@pytest.mark.parametrize(
    ("task", "spec", "classes", "printed", "ours_less"),
    [
        ("listops", LISTOPS, 10, 4_481_674, 2 * 128),  # theirs also has <unk> and <eos>
        ("text", CHARACTERS, 2, 7_133_698, 0),
        ("image", GRAY, 10, 15_763_466, 0),
        ("pathx", GRAY, 2, 7_099_394, 0),
    ],
)
def test_dlr_has_the_printed_parameters(task: str, spec: Input, classes: int, printed: int, ours_less: int) -> None:
    s = amos2025_figure2.dlr(task)
    assert parameters(s.shape, DLR(s.state, lr=s.lr), spec, classes) == printed - ours_less


def test_phases_of_figure_2_are_as_long_as_those_of_s4_but_for_their_rates() -> None:
    for task in amos2025_figure2.TASKS:
        like, random = amos2025_figure2.s4(task), amos2025_figure2.s4_random(task)
        dlr = amos2025_figure2.dlr(task)
        assert random.shape == like.shape and dlr.loss == like.loss and dlr.ratio == like.ratio
        for other in (random, dlr):
            assert other.pretrain.budget == like.pretrain.budget and other.finetune.budget == like.finetune.budget
            assert other.scratch.budget == like.finetune.budget
    assert amos2025_figure2.s4_random("image").scratch.assumed[-2:] == ("lr", "batch")
    assert amos2025_figure2.dlr("text", "random").scratch.lr == 1e-3


def test_all_models_of_figure_2_pool_pathx_by_max_and_are_otherwise_those_of_table_2() -> None:
    for task in amos2025_figure2.TASKS:
        models = {run.model.name: run.model for run in amos2025_figure2_study.runs("paper") if run.task.name == task}
        assert {model.pooling for model in models.values()} == {"max" if task == "pathx" else "mean"}
        table, figure = amos2025.s4(task), amos2025_figure2.s4(task)
        assert replace(figure, shape=replace(figure.shape, pooling=table.shape.pooling)) == table
        assert (figure == table) == (task != "pathx")


def test_pythia_has_the_published_parameters_but_for_embeddings() -> None:
    """18,915,328 is what the table of github.com/EleutherAI/pythia has for 70M."""
    s = amos2025.pythia("listops")
    mixer = Attention(s.heads, rotary="per_head", rotary_width=s.rotary_width)
    model = s.shape.model(mixer, "pythia", causal=True)
    net = Network(model, LISTOPS, (Head("label", 10, "sequence", 1),), mask_flag=False, seed=0)
    trunk = [p for name, p in net.named_parameters() if not name.startswith(("encoder", "heads"))]
    assert sum(p.numel() for p in trunk) == 18_915_328
    assert {amos2025.pythia(task).shape.pooling for task in ("text", "pathfinder")} == {"last"}


def test_nothing_of_spade_is_printed() -> None:
    s = amos2025.spade("image")
    assert {"width", "depth"} <= set(s.shape.assumed) and {"lr", "batch", "budget"} <= set(s.recipe.assumed)


def test_models_of_table_3_have_the_parameters_of_their_configurations() -> None:
    """Speech Commands (one channel, 35 words) and BIDMC (two channels, one value)."""

    def count(shape: Shape, mixer: MixerConfig, channels: int, outputs: int) -> int:
        return parameters(shape, mixer, Signal(channels, (0.0,) * channels, (1.0,) * channels), outputs)

    for task, channels, outputs, transformer, ssm in (
        ("speech", 1, 35, 403_363, 378_275),
        ("bidmc_hr", 2, 1, 306_209, 604_417),
    ):
        t, s = amos2025.transformer_rotary(task), amos2025.s4(task)
        assert count(t.shape, Attention(t.heads, rotary="per_head", block=t.block), channels, outputs) == transformer
        assert count(s.shape, S4(state=s.state, copies=s.copies), channels, outputs) == ssm


def test_transformers_of_amos2025_have_the_printed_parameters() -> None:
    def rotary(task: str, spec: Input, classes: int) -> int:
        s = amos2025.transformer_rotary(task)
        return parameters(s.shape, Attention(s.heads, rotary="per_head"), spec, classes)

    def tay(task: str, spec: Input, classes: int) -> int:
        s = amos2025.transformer(task)
        return parameters(s.shape, Attention(s.heads), spec, classes)

    assert rotary("scifar", COLOUR, 10) == 3_232_522
    assert rotary("image", GRAY, 10) == 3_232_522 - 2 * 256  # two channels less
    # Table 1's are known in units of 1,000 or 10,000.
    assert round(tay("listops", LISTOPS, 10) + 2 * 512, -4) == 18_930_000  # theirs also has <unk> and <eos>
    assert round(tay("text", CHARACTERS, 2), -4) == 19_250_000
    assert round(tay("image", GRAY, 10), -3) == 105_000
    assert round(tay("pathfinder", GRAY, 2), -3) == 399_000
    pairs = amos2025.transformer("retrieval")
    assert round(parameters(pairs.shape, Attention(pairs.heads), PAIRED, 2, documents=2), -3) == 872_000


@pytest.mark.parametrize(
    ("task", "kernel", "printed"),
    [
        ("listops", 5, 1_186_954),
        ("listops", 31, 6_298_762),
        ("image", 5, 1_217_930),
        ("image", 21, 4_363_658),
        ("pathfinder", 5, 264_321),
        ("pathfinder", 61, 608_385),
    ],
)
def test_convolutions_have_the_printed_parameters(task: str, kernel: int, printed: int) -> None:
    s = miralles2025.conv(task)
    classes = 2 if task == "pathfinder" else 10
    count = parameters(s.shape, Conv(kernel, s.hidden, s.groups), LISTOPS if task == "listops" else SYMBOLS, classes)
    assert count == printed + MIRALLES_DIFFERENCE[task] * s.shape.width + (task == "pathfinder")


# Symbols of width each: theirs has three special ones for CIFAR and a single logit for Pathfinder; ours two and two.
MIRALLES_DIFFERENCE = {"listops": 0, "image": -1, "pathfinder": 1}


@pytest.mark.parametrize(
    ("task", "printed_transformer", "printed_gmlp"),
    [("listops", 3_169_546, 697_786), ("image", 2_108_650, 1_072_562), ("pathfinder", 828_033, 656_025)],
)
def test_tables_5_and_6_have_the_printed_parameters(task: str, printed_transformer: int, printed_gmlp: int) -> None:
    spec, classes = (LISTOPS if task == "listops" else SYMBOLS), (2 if task == "pathfinder" else 10)
    t, g = miralles2025.transformer(task), miralles2025.gmlp(task)
    more = MIRALLES_DIFFERENCE[task]
    attention = Attention(t.heads, rotary="across_heads", rotary_half=t.rotary_half)
    counted = parameters(t.shape, attention, spec, classes)
    assert counted == printed_transformer + more * t.shape.width + (task == "pathfinder")
    counted = parameters(g.shape, GMLP(g.hidden, g.channels, g.bound), spec, classes)
    assert counted == printed_gmlp + more * g.shape.width + (task == "pathfinder")


def test_models_of_two_documents_have_the_printed_parameters() -> None:
    """With their denoising head; theirs have a symbol more in, three more out, and one logit of 512 + 1 less."""

    def count(shape: Shape, mixer: MixerConfig) -> int:
        return parameters(shape, mixer, SYMBOLS, 2, documents=2) + (shape.width + 1) * 256

    difference = 128 + 3 * (128 + 1) - (512 + 1)
    t, g, c = miralles2025.transformer("retrieval"), miralles2025.gmlp("retrieval"), miralles2025.conv("retrieval")
    attention = Attention(t.heads, rotary="across_heads", rotary_half=t.rotary_half)
    assert count(t.shape, attention) == 993_540 - difference
    assert count(g.shape, GMLP(g.hidden, g.channels, g.bound)) == 895_260 - difference
    assert count(c.shape, Conv(5, c.hidden, c.groups)) == 987_652 - difference
    assert count(c.shape, Conv(61, c.hidden, c.groups)) == 8_327_684 - difference


def every_recipe() -> list[Recipe]:
    found: list[Recipe] = []
    for effort in ("smoke", "minutes", "hours", "paper"):
        for task in miralles2025.TASKS:
            makers = (miralles2025.transformer, miralles2025.gmlp, miralles2025.conv)
            found += [make(task, effort).recipe for make in makers]
            remade = (baselines.mega, baselines.s4, baselines.s5)
            found += [make(task, effort, enriched=anew).recipe for make in remade for anew in (False, True)]
        for task in amos2025.SIGNALS:
            settings = [amos2025.transformer_rotary(task, effort), amos2025.s4(task, effort)]
            found += [r for s in settings for r in (s.scratch, s.pretrain, s.finetune)]
        for task in ("listops", "text", "retrieval", "image", "pathfinder", "pathx"):
            settings = [amos2025.transformer_rotary(task, effort), amos2025.s4(task, effort)]
            settings += [amos2025.transformer(task, way, effort) for way in ("masked", "causal")]
            found += [r for s in settings for r in (s.scratch, s.pretrain, s.finetune)]
            found += [amos2025.spade(task, effort).recipe, amos2025.pythia(task, effort).recipe]
        for task in amos2025_figure2.TASKS:
            diagonal = [amos2025_figure2.dlr(task, start, effort) for start in ("structured", "random")]
            settings = [*diagonal, amos2025_figure2.s4_random(task, effort)]
            found += [r for s in settings for r in (s.scratch, s.pretrain, s.finetune)]
    return found


def test_every_recipe_cites_its_source_and_names_only_real_fields_as_assumed() -> None:
    names = {f.name for f in fields(Recipe)}
    for recipe in every_recipe():
        assert recipe.source
        assert set(recipe.assumed) <= names
        assert recipe.assumed, "no paper prints all of a recipe"


def test_shapes_name_what_nobody_printed() -> None:
    unknown = amos2025.transformer_rotary("pathfinder").shape
    assert {"width", "depth", "heads"} <= set(unknown.assumed)
    assert amos2025.transformer_rotary("image").shape.assumed == ()
    assert miralles2025.conv("image").shape.assumed == ("block.prenorm", "block.final_norm")


def test_printed_lengths_resolve_to_the_steps_of_the_published_configurations() -> None:
    """S4's Image run: 45,000 pictures, batch 50, 200 epochs are the 180,000 steps its official schedule names."""
    recipe = amos2025.s4("image").scratch
    steps = recipe.budget.resolve(batch=recipe.batch, examples=45_000, tokens_per_example=1024)
    assert steps == 180_000


def test_three_pathfinder_sets_for_67_epochs_are_one_set_for_200() -> None:
    three, one = miralles2025.transformer("pathfinder"), miralles2025.transformer("pathfinder", enriched=False)
    assert (three.recipe.budget.value, one.recipe.budget.value) == (67, 200)
    assert abs(3 * 67 - 200) <= 1
    assert replace(three.recipe, budget=one.recipe.budget) == one.recipe


@pytest.mark.parametrize(
    ("task", "spec", "classes", "documents"),
    [
        ("listops", LISTOPS, 10, 1),
        ("text", CHARACTERS, 2, 1),
        ("retrieval", PAIRED, 2, 2),
        ("image", GRAY, 10, 1),
        ("pathfinder", GRAY, 2, 1),
    ],
)
def test_s5_has_the_parameters_of_its_formulas(task: str, spec: Input, classes: int, documents: int) -> None:
    """Counted by hand: of a layer B, two C, D, lambda, dt, the gate and the norm."""
    s = smith2023.s5(task)
    mixer = S5(s.state, s.blocks, s.activation, s.readout_init, clip=s.clip, lr=s.lr, drive_follows=s.drive_follows)
    width, pairs = s.shape.width, s.state // 2
    layer = 3 * 2 * pairs * width + width + 3 * pairs + width * (width + 1) + 2 * width
    symbols = spec.symbols + 2 if isinstance(spec, Tokens) else 2
    head = (4 * width + 1) * width + (width + 1) * classes if documents == 2 else (width + 1) * classes
    assert parameters(s.shape, mixer, spec, classes, documents) == s.shape.depth * layer + symbols * width + head


def test_models_trained_anew_keep_their_own_numbers_and_take_the_papers_schedule() -> None:
    for task in miralles2025.TASKS:
        own = {"mega": ma2023.mega(task).recipe, "s4": amos2025.s4(task).scratch, "s5": smith2023.s5(task).recipe}
        shared = miralles2025.transformer(task).recipe
        for name, recipe in own.items():
            setting = {"mega": baselines.mega, "s4": baselines.s4, "s5": baselines.s5}[name](task, enriched=True)
            anew = setting.recipe
            assert (anew.lr, anew.batch, anew.weight_decay) == (recipe.lr, recipe.batch, recipe.weight_decay)
            assert {"lr", "batch", "weight_decay"} <= set(anew.assumed)
            assert (anew.schedule, anew.betas, anew.patience) == (shared.schedule, shared.betas, shared.patience)
            fewer = (name, task) == ("s5", "retrieval")
            assert (anew.budget == shared.budget) is not fewer
            quoted = {"mega": baselines.mega, "s4": baselines.s4, "s5": baselines.s5}[name](task)
            assert quoted.recipe == recipe
    assert {baselines.mega(task, enriched=True).attention for task in miralles2025.TASKS} == {"softmax"}
    full = {task for task in miralles2025.TASKS if baselines.s5(task, enriched=True).activation == "full_glu"}
    assert full == {"pathfinder", "retrieval"}


@pytest.mark.parametrize("effort", ["smoke", "minutes", "overnight", "hours"])
def test_below_paper_all_models_of_a_table_have_equally_many_steps(effort: Effort) -> None:
    for task in miralles2025.TASKS:
        rotary, plain = baselines.transformer_rotary(task, effort), baselines.transformer(task, effort)
        total = rotary.pretrain.budget.value + rotary.finetune.budget.value
        others = [make(task, effort, enriched=True).recipe for make in (baselines.mega, baselines.s4, baselines.s5)]
        others += [plain.scratch, miralles2025.gmlp(task, effort).recipe, miralles2025.transformer(task, effort).recipe]
        assert {recipe.budget.value for recipe in others} == {total}
        assert len({recipe.batch for recipe in (*others, rotary.pretrain, rotary.finetune)}) == 1


def test_what_is_asked_for_twice_is_one_object() -> None:
    assert amos2025.s4("listops", "minutes") is amos2025.s4("listops", "minutes")
    assert miralles2025.conv("image").recipe is miralles2025.conv("image").recipe
    setting = amos2025.transformer_rotary("listops")
    assert setting.scratch is setting.finetune  # of the scratch runs only a search grid is printed


@pytest.mark.parametrize("effort", ["smoke", "minutes", "hours"])
def test_below_paper_scratch_sees_as_many_examples_as_both_phases(effort: str) -> None:
    for setting in (amos2025.s4("image", effort), amos2025.transformer_rotary("text", effort)):  # type: ignore[arg-type]
        seen = [r.budget.value * r.batch for r in (setting.scratch, setting.pretrain, setting.finetune)]
        assert seen[0] == seen[1] + seen[2]
        assert {r.budget.unit for r in (setting.scratch, setting.pretrain, setting.finetune)} == {"steps"}


def test_a_scale_shrinks_and_never_grows() -> None:
    printed = Shape(64, 3, Block(feedforward=128), head_hidden=64)
    assert Scale(width=512, depth=8, batch=1, steps=1).shape(printed) == printed
    small = Scale(width=16, depth=2, batch=1, steps=1).shape(printed)
    assert (small.width, small.depth, small.block.feedforward, small.head_hidden) == (16, 2, 32, 16)


def test_a_shortened_recipe_keeps_its_form_and_says_what_changed() -> None:
    printed = amos2025.s4("pathx").scratch
    short = Scale(width=16, depth=1, batch=4, steps=50, lr=0.5).recipe(printed, 50)
    assert (short.schedule, short.weight_decay, short.betas) == (printed.schedule, printed.weight_decay, printed.betas)
    assert (short.budget, short.warmup) == (Duration(50, "steps"), Duration(5, "steps"))
    changed = {f.name for f in fields(Recipe) if getattr(short, f.name) != getattr(printed, f.name)}
    assert changed - {"source", "assumed"} <= set(short.assumed)


def test_a_task_without_a_recipe_is_one_clear_sentence() -> None:
    with pytest.raises(UserError, match="did you mean 'listops'"):
        miralles2025.conv("listop")
    with pytest.raises(UserError, match="no recipe of amos2025's rotary Transformer for 'pathx256'"):
        amos2025.transformer_rotary("pathx256")
