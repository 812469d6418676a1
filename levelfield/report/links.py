"""Marks a number in a text with the place on the page that has its rows, and makes links of such marks.

    text = f"S4 has {marked('59.6 %', 'rows-listops-s4')}."      # reads "S4 has 59.6 %." wherever it is printed
    linked(escape(text))                                         # 'S4 has <a href="#rows-listops-s4">59.6 %</a>.'
    plain(text)                                                  # "S4 has 59.6 %."

A verdict is a sentence that a study writes, and only whoever writes a number into it knows which rows it is from. The
marks are characters of Unicode's private use area, which survive formatting, joining and escaping.

A number that is computed from several scores leads to the sum that it is, whose anchor says all of it:

    computed([(1, "rows-listops-s4"), (-1, "rows-listops-attention")])
    # "computed~+1~rows-listops-s4~-1~rows-listops-attention"

A list of rows is folded away at the end of a page, and leads back to the number that led to it:

    list_html("rows-listops-s4", "s4: 59.6", "its rows")         # <details>...<div id="rows-listops-s4">its rows</div>
    return_link("rows-listops-s4")                               # <a href="#of-rows-listops-s4">Back to the table</a>
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from html import escape
from itertools import pairwise

from levelfield.spec import Row

OPEN, MIDDLE, CLOSE = "\ue000", "\ue001", "\ue002"
_MARK = re.compile(f"{OPEN}([A-Za-z0-9_.~+-]+){MIDDLE}([^{OPEN}-{CLOSE}]*){CLOSE}")
_LEFT = re.compile(f"{OPEN}[^{OPEN}-{CLOSE}]*{MIDDLE}|[{OPEN}-{CLOSE}]")


def marked(text: str, anchor: str) -> str:
    """Returns text that leads to an anchor; the text itself where the anchor is ""."""
    return f"{OPEN}{anchor}{MIDDLE}{text}{CLOSE}" if anchor else text


def linked(html: str) -> str:
    """Returns HTML in which every mark is a link; of a mark that was cut in two the text is left."""
    return _LEFT.sub("", _MARK.sub(r'<a href="#\1">\2</a>', html))


def plain(text: str) -> str:
    """Returns text without marks."""
    return _LEFT.sub("", text)


def cited(text: str) -> Set[str]:
    """Returns the anchors that a text leads to, in its order, and those of which a number in it is computed."""
    found = [found[1] for found in _MARK.finditer(text)]
    inner = [term for anchor in found for terms in sums(anchor) for _, term in terms if term]
    return dict.fromkeys([*found, *inner]).keys()


COMPUTED, OVER, LIMIT = "computed", "over", "limit"
Terms = tuple[tuple[float, str], ...]
"""Weights and anchors of scores whose weighted means are added; without an anchor, the weight itself is what is added,
such as the limit of a question."""


def computed(terms: Iterable[tuple[float, str]], over: Iterable[tuple[float, str]] = ()) -> str:
    """Returns the anchor of a weighted sum, or of one sum over another; "" of no terms."""
    parts, below = (
        [part for weight, anchor in each for part in (f"{weight:+g}", anchor or LIMIT)] for each in (terms, over)
    )
    return "~".join([COMPUTED, *parts, *([OVER, *below] if below else [])]) if parts else ""


def sums(anchor: str) -> tuple[Terms, ...]:
    """Returns the sum of such an anchor, or the two of which it is one over the other; () for any other anchor."""
    head, *parts = anchor.split("~")
    cut = parts.index(OVER) if OVER in parts else len(parts)
    if head != COMPUTED:
        return ()
    return tuple(
        tuple((float(weight), anchor if anchor != LIMIT else "") for weight, anchor in list(pairwise(each))[::2])
        for each in (parts[:cut], parts[cut + 1 :])
        if each
    )


def common_anchor(rows: Iterable[Row]) -> str:
    """Returns where a page has these rows, as its index says in them; "" where it does not, or has them in several
    places."""
    found = {str(row.get("anchor", "")) for row in rows}
    return found.pop() if len(found) == 1 else ""


CELL = ("source", "table", "model", "protocol", "task", "at", "metric")
"""What tells a printed row from all others."""


def printed_anchor(row: Row) -> str:
    """Returns where a page lists a printed row: "printed-amos2025-2-s4-scratch-image-accuracy"."""
    return slug("printed", *(str(row.get(key, "")) for key in CELL))


def slug(*names: str) -> str:
    """Returns names as one anchor: slug("rows", "length=200") is "rows-length-200"."""
    return "-".join(part for name in names if (part := re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-")))


def back(anchor: str) -> str:
    """Returns the anchor of the number to which the way back from a list leads."""
    return f"of-{anchor}"


def return_link(anchor: str) -> str:
    """Returns the way back from a list, as HTML."""
    return f'<a href="#{back(anchor)}">Back to the table</a>'


def list_html(anchor: str, summary: str, inside: str) -> str:
    """Returns a list of rows that is folded away. inside: HTML."""
    return f'<details class="rows"><summary>{escape(summary)}</summary>\n<div id="{anchor}">{inside}</div></details>'
