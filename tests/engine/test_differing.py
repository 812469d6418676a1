"""What differs between many arms, in words that a person reads: nothing is said that is not so, and nothing is lost."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
import tiny

from levelfield.engine import differing, plan
from levelfield.engine.find import Source, choose
from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.mixers.s4 import S4
from levelfield.protocols import scratch, spt_masked
from levelfield.report.arms import Arm, differences, group
from levelfield.spec import Block, Model, Run, describe
from levelfield.tasks.listops import ListOps

UNIVERSE = [Arm("t", m, p, v) for m in ("a", "b", "c") for p in ("scratch", "spt") for v in ("n=1", "n=2", "n=3")]
STUDIES = (("reach", "overnight"), ("amos2025_small", "overnight"), ("huang2024_small", "minutes"))


def meant(words: str) -> set[Arm]:
    """Reads what `group` writes, by rules of its own."""
    if words == "all arms":
        return set(UNIVERSE)
    if words.startswith("all but "):
        return set(UNIVERSE) - meant(words.removeprefix("all but "))
    if "(" in words and ("), " in words or words.endswith(")") or ") · " in words):
        found: set[Arm] = set()
        rest, _, tail = words.rpartition(") · ")
        protocols = {p for p in ("scratch", "spt") if p in tail.split(", ")} if rest and "(" not in tail else None
        for name in words.split(", "):
            label, _, protocol = name.partition(" · ")
            own = {protocol} if protocol else protocols or {"scratch", "spt"}
            found |= {a for a in UNIVERSE if a.model_label == label and a.protocol in own}
        return found
    which, _, protocols = words.rpartition(" · ") if " · " in words else (words, "", "")
    if not protocols and set(which.split(", ")) <= {"scratch", "spt"}:
        which, protocols = "", which
    models, _, variants = which.partition(" with ")
    return {
        a
        for a in UNIVERSE
        if (models in ("", "all") or a.model in models.split(", "))
        and (not variants or a.variant in variants.split(", "))
        and (not protocols or a.protocol in protocols.split(", "))
    }


def test_words_for_a_set_of_arms_mean_that_set() -> None:
    draw = random.Random(0)
    crossed = [
        {a for a in UNIVERSE if a.model in ms and a.variant in vs and a.protocol in ps}
        for ms in ("a", "ab", "abc")
        for vs in (("n=1",), ("n=1", "n=3"), ("n=1", "n=2", "n=3"))
        for ps in (("spt",), ("scratch", "spt"))
    ]
    odd = [set(draw.sample(UNIVERSE, draw.randint(1, len(UNIVERSE)))) for _ in range(300)]
    for chosen in (*crossed, *odd):
        ordered = [arm for arm in UNIVERSE if arm in chosen]
        assert meant(group(ordered, UNIVERSE)) == chosen, group(ordered, UNIVERSE)


def test_sets_of_arms_are_told_by_what_they_have_in_common() -> None:
    def words(most: int | None = None, **values: str) -> str:
        return group([a for a in UNIVERSE if all(getattr(a, k) == v for k, v in values.items())], UNIVERSE, most)

    assert words() == "all arms" and words(model="a") == "a" and words(protocol="spt") == "spt"
    assert words(variant="n=2") == "all with n=2" and words(variant="n=2", protocol="spt") == "all with n=2 · spt"
    assert words(model="a", variant="n=2") == "a (n=2)"
    assert group([a for a in UNIVERSE if a.model != "b"], UNIVERSE) == "a, c"
    assert group(UNIVERSE[1:], UNIVERSE) == "all but a (n=1) · scratch"
    odd = [a for i, a in enumerate(UNIVERSE) if i % 2]
    assert group(odd, UNIVERSE, 2).endswith("and 7 more") and group(odd, UNIVERSE).count(", ") == 8


@pytest.mark.parametrize("place", STUDIES, ids=lambda place: "-".join(place))
def test_shipped_studies_of_many_arms_are_told_in_short_lines_that_leave_no_field_and_no_arm_out(
    place: tuple[str, str],
) -> None:
    runs = choose(Source(place[0]).load(), place[1])  # pyright: ignore[reportArgumentType]
    defaults = differing.defaults_of(runs)
    for arms in differing.by_task(runs).values():
        found = differing.told_apart(arms)
        assert len(found) == len(arms) and all(len(str(arm)) < 50 for arm in found)
        specs = differing.described(found)
        said = list(differing.lines(specs, defaults))
        assert said and max(map(len, said)) < 170
        whole = differences(specs)
        parts = differing.together(whole)
        assert sorted(name for part in parts for name in part.fields) == sorted(d.field for d in whole)
        assert all(sorted(map(str, sum(p.values.values(), ()))) == sorted(map(str, specs)) for p in parts)


def test_fields_that_follow_from_one_another_stand_on_one_line() -> None:
    recipe = tiny.recipe(batch=8)
    runs = [
        Run(ListOps(minimum=10, length=length), Model((mixer,), 1, 8), scratch(replace(recipe, batch=batch)), 0)
        for length, batch in ((20, 8), (40, 8), (80, 4))
        for mixer in (Conv(3, hidden=8), Attention(2))
    ]
    (arms,) = differing.by_task(runs).values()
    said = list(differing.lines(differing.described(differing.told_apart(arms)), differing.defaults_of(runs)))
    assert said[:4] == [
        "  task.length · protocol.phases.last.recipe.batch (these vary as one)",
        "    20 · 8   [all with length=20]",
        "    40 · 8   [all with length=40]",
        "    80 · 4   [all with length=80]",
    ]
    assert said[4:] == [
        "  model.mixers",
        "    Conv(kernel=3, hidden=8)   [conv]",
        "    Attention(heads=2)         [attention]",
    ]


def test_mixers_show_what_is_not_at_its_default_or_varies_and_an_earlier_phase_what_the_last_one_lacks() -> None:
    recipe, task = tiny.recipe(batch=8), ListOps(minimum=10, length=40)
    mixers = {"one": Attention(2), "two": Attention(2, window=4), "three": S4()}
    runs = [
        Run(task, Model((mixer,), 1, 8, name=name, block=Block(feedforward=16)), protocol, 0)
        for name, mixer in mixers.items()
        for protocol in (scratch(recipe), spt_masked(replace(recipe, lr=0.5), recipe, ratio=0.5))
    ]
    (arms,) = differing.by_task(runs).values()
    said = "\n".join(differing.lines(differing.described(arms), differing.defaults_of(runs)))
    assert "Attention(heads=2, window=none)   [one]" in said and "Attention(heads=2, window=4)      [two]" in said
    assert "S4()                              [three]" in said
    assert "as the last phase, but objective=Masked(ratio=0.5), lr=0.5, start=fresh   [spt_masked]" in said


def test_arms_of_one_name_are_told_apart_by_as_few_fields_as_do() -> None:
    """One where one does; two where no one does; and a long value only where no short one does."""

    def variants(*settings: tuple[int, int, int]) -> list[str]:
        runs = {
            Arm("t", "m", "p", str(i)): describe(
                Run(ListOps(minimum=10, length=n), Model((Conv(k, hidden=8),), d, 8), scratch(tiny.recipe()), 0)
            )
            for i, (n, k, d) in enumerate(settings)
        }
        return [arm.variant for arm in differing.named(runs).values()]

    assert variants((20, 3, 1), (40, 3, 1), (80, 5, 1)) == ["length=20", "length=40", "length=80"]
    assert variants((20, 3, 1), (20, 5, 1), (40, 3, 2)) == [
        "length=20, kernel=3",
        "length=20, kernel=5",
        "length=40, kernel=3",
    ]
    assert variants((20, 3, 1)) == [""]


def test_a_plan_for_programs_names_every_arm_of_every_value_and_its_runs() -> None:
    runs = choose(Source("reach").load(), "overnight")
    found = json.loads(plan.to_json("reach", "overnight", dict.fromkeys(runs, False)))
    arms = found["arms"]["reach"]
    assert sorted(i for ids in arms.values() for i in ids) == sorted(run.id for run in runs)
    for values in found["differences"]["reach"].values():
        assert sorted(arm for value in values for arm in value["arms"]) == sorted(arms)
    mixers = found["differences"]["reach"]["model.mixers"]
    assert any("rotary_base=10000" in value["value"] for value in mixers), "whole, with defaults"
