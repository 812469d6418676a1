"""Divides a score on ListOps by the root operator of its expressions, beside the greedy rule, for the findings.

Miralles-González et al. (2025, appendix B) show that models may live by the operator at the root alone: the largest of
several digits is mostly 9. A model has learnt more than that only as far as it is above the greedy rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from levelfield.report.cells import gather
from levelfield.report.decisions import Seeds, difference
from levelfield.report.training_curves import slices
from levelfield.report.verdicts import scores
from levelfield.runs.results import Results

ALT = "Scores by root operator, medians over seeds,"
TASK, AXIS, RULE = "listops", "root", "greedy_root"
SUM = "SM"  # the operator of whose answer a part of the arguments tells next to nothing
CLOSE = 5.0  # points beyond the rule up to which it counts as not learnt
LEAST, SHORT, MOST = "conv3", "conv11", "gmlp"  # what sees 3 and 11 steps a layer, and what sees everything


def table(results: Results) -> Iterator[str]:
    """Yields lines of Markdown: a row for each operator, with intervals of two differences, and who learns no sum."""
    rows = [row for row in results.rows if row.get("task") == TASK and "," not in row.get("at", "")]
    arms = {(key.model, key.place): arm for key, arm in scores(rows, AXIS).items()}
    models, places = (list(dict.fromkeys(names)) for names in zip(*arms, strict=True))
    greedy = {row.get("at", ""): row for row in rows if row.get("model") == RULE}
    yield "**ListOps by root operator.** The greedy rule answers with the most frequent label of the operator at the"
    yield "root and reads nothing else. Scores are means over seeds, in percent of test expressions with that operator,"
    yield f"and medians in the figure. The last columns say what `{LEAST}` has beyond the rule, and `{MOST}` beyond"
    yield f"`{SHORT}`.\n"
    beyond = f"`{LEAST}` beyond the rule", f"`{MOST}` beyond `{SHORT}`"
    yield f"| operator | expressions | greedy rule | {' | '.join([*(f'`{m}`' for m in models), *beyond])} |"
    yield "|---" * (len(models) + 5) + "|"
    for place in places:
        rule = greedy[f"{AXIS}={place}"]
        count = rule.get("n", 0)
        guessed = Seeds((100 * rule.get("value", 0.0),), count, trained=False)
        spans = (
            difference(arms[LEAST, place], guessed).span(),
            difference(arms[MOST, place], arms[SHORT, place]).span(),
        )
        means = [f"{mean:.1f}" for mean in (guessed.mean, *(arms[model, place].mean for model in models))]
        yield " | ".join([f"| {place}", f"{count:,}", *means, *map(str, spans)]) + " |"
    yield ""
    rule, best = greedy[f"{AXIS}={SUM}"], max(arms[model, SUM].mean for model in models)
    guessed_right = 100 * rule.get("value", 0.0)
    if best <= guessed_right + CLOSE:
        share = 100 * rule.get("n", 0) / greedy[""].get("n", 1)
        yield (
            f"No arm learns the sum modulo 10 (`{SUM}`, {share:.0f} % of the test): the best has {best:.1f} %, the "
            f"rule {guessed_right:.1f} %. A part of the arguments tells next to nothing of such a sum. So scores on "
            "ListOps here are about the other three operators, of which a part of the arguments tells something.\n"
        )


def figures(results: Results) -> dict[str, bytes]:
    """Returns the figure of the report, a PNG: bars for the rules and every arm, with a dot for each seed."""
    cells = gather(results)
    drawn = slices(results, cells, AXIS)
    assert drawn, "no score is by the root operator"
    return {"": drawn.png}
