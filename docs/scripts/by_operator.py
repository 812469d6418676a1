"""Divides a score on ListOps by the root operator of its expressions, beside the greedy rule, for the findings.

Miralles-González et al. (2025, appendix B) show that models may live by the operator at the root alone: the largest of
several digits is mostly 9. A model has learnt more than that only as far as it is above the greedy rule, and reads
nested expressions only as far as it is above a rule that reads one level of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from levelfield.report.cells import gather
from levelfield.report.decisions import Seeds, difference
from levelfield.report.scatter import Scatter
from levelfield.report.training_curves import slices
from levelfield.report.verdicts import scores
from levelfield.runs.results import Results
from levelfield.spec import Row

ALT = "Scores by root operator, medians over seeds,"
TASK, AXIS, RULE, PART = "listops", "root", "greedy_root", "one_level"
SUM = "SM"  # the operator of whose answer a part of the arguments tells next to nothing
CLOSE = 5.0  # points beyond the rule up to which it counts as not learnt
LEAST, SHORT, MOST = "conv3", "conv11", "gmlp"  # what sees 3 and 11 steps a layer, and what sees everything


def table(results: Results) -> Iterator[str]:
    """Yields lines of Markdown: a row for each operator, with intervals of three differences, and who learns no sum."""
    rows = [row for row in results.rows if row.get("task") == TASK and "," not in row.get("at", "")]
    arms = {(key.model, key.place): arm for key, arm in scores(rows, AXIS).items()}
    models, places = (list(dict.fromkeys(names)) for names in zip(*arms, strict=True))
    greedy, part = ({row.get("at", ""): row for row in rows if row.get("model") == rule} for rule in (RULE, PART))
    yield "**ListOps by root operator.** The greedy rule answers with the most frequent label of the operator at the"
    yield "root and reads nothing else. *One level* also reads the arguments of the root, digits and operators, and"
    yield "nothing further inside ([how](tasks.md#listops)). Scores are means over seeds, in percent of test"
    yield "expressions with that operator, and medians in the figure. The last columns say what"
    yield f"`{LEAST}` has beyond the greedy rule, and `{MOST}` beyond one level and beyond `{SHORT}`.\n"
    beyond = f"`{LEAST}` beyond the rule", f"`{MOST}` beyond one level", f"`{MOST}` beyond `{SHORT}`"
    names = [*(f"`{model}`" for model in models), *beyond]
    yield f"| operator | expressions | greedy rule | one level | {' | '.join(names)} |"
    yield "|---" * (len(models) + 7) + "|"
    for place in places:
        guessed, level = (_scored(rule[f"{AXIS}={place}"]) for rule in (greedy, part))
        least, short, most = (arms[model, place] for model in (LEAST, SHORT, MOST))
        scatter = Scatter.pooled(arms[model, place].values for model in models)
        pairs = (least, guessed), (most, level), (most, short)
        spans = [difference(one, other, scatter=scatter).span() for one, other in pairs]
        means = [f"{mean:.1f}" for mean in (guessed.mean, level.mean, *(arms[model, place].mean for model in models))]
        yield " | ".join([f"| {place}", f"{guessed.examples:,}", *means, *map(str, spans)]) + " |"
    yield ""
    rule, best = greedy[f"{AXIS}={SUM}"], max(arms[model, SUM].mean for model in models)
    guessed_right = 100 * rule.get("value", 0.0)
    if best <= guessed_right + CLOSE:
        share = 100 * rule.get("n", 0) / greedy[""].get("n", 1)
        yield (
            f"No arm learns the sum modulo 10 (`{SUM}`, {share:.0f} % of the test): the best has {best:.1f} %, the "
            f"rule {guessed_right:.1f} %. Part of the arguments says next to nothing about such a sum. So scores on "
            "ListOps here reflect the other three operators, about which part of the arguments says something.\n"
        )


def _scored(rule: Row) -> Seeds:
    return Seeds((100 * rule.get("value", 0.0),), rule.get("n", 0), trained=False)


def figures(results: Results) -> dict[str, bytes]:
    """Returns the figure of the report, a PNG: bars for the rules and every arm, with a dot for each seed."""
    cells = gather(results)
    drawn = slices(results, cells, AXIS)
    assert drawn, "no score is by the root operator"
    return {"": drawn.png}
