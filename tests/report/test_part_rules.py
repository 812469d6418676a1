"""Tests what is said of rules that do a part of what a task asks."""

from __future__ import annotations

from levelfield.presets import comparison
from levelfield.report.decisions import Seeds
from levelfield.report.part_rules import beside_parts
from levelfield.report.verdicts import Key, Rule, Table
from levelfield.spec import Row
from levelfield.spec.study import PARTS

GREEDY = Rule("greedy_root", Seeds((25.0,), 5_000, trained=False))
PART = Rule(PARTS[0], Seeds((50.0,), 5_000, trained=False))
LOW, LEVEL, HIGH = (Seeds((mean - 0.5, mean, mean + 0.5), 5_000) for mean in (40.0, 50.0, 60.0))


def test_an_arm_that_has_less_than_a_part_rule_has_learnt_all_the_same() -> None:
    table = Table({Key("listops", "s4", "scratch"): LOW}, {"listops": [GREEDY, PART]})
    assert table.learnt(Key("listops", "s4", "scratch")) and table.rule("listops") == GREEDY
    assert not table.learnt(Key("listops", "s4", "scratch"), PARTS) and table.rule("listops", PARTS) == PART


def test_arms_are_told_from_a_part_rule_only_beyond_noise() -> None:
    table = Table({}, {"listops": [GREEDY, PART]})
    said = beside_parts(table, "listops", {"a": LOW, "b": LEVEL, "c": HIGH, "d": HIGH})
    assert said == (
        " Reading one level of the expressions gives 50.0 %: c and d have more, a has less, b has neither more nor "
        "less beyond noise."
    )
    assert beside_parts(table, "image", {"a": LOW}) == ""


def test_a_comparison_says_who_is_above_a_part_rule() -> None:
    rule = Row(task="listops", protocol="none", metric="accuracy", split="test", n=5_000)
    rows = [rule | Row(model=name, value=value) for name, value in (("chance", 0.1), (PARTS[0], 0.5))]
    for model, mean in (("mine", 0.6), ("s4", 0.4)):
        arm = rule | Row(model=model, protocol="scratch")
        rows += [arm | Row(run=f"{model}{seed}", seed=seed, value=mean + 0.005 * seed) for seed in range(3)]
    assert comparison.verdict("mine", rows).endswith(" gives 50.0 %: mine has more, s4 has less.")
