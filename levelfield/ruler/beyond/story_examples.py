"""Holds the solved examples in the prompts of stories, with names that no story has."""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    """A story solved."""

    facts: str
    question: str
    answer: str


EXAMPLES: dict[int, tuple[Example, ...]] = {
    1: (Example("Wanda went into the chapel.\nViktor went into the library.", "Where is Wanda?", "chapel"),),
    2: (
        Example(
            "Wanda went into the chapel.\nWanda picked up the drum.\nWanda went into the library.\n"
            "Wanda put down the drum.\nWanda went into the chapel.",
            "Where is the drum?",
            "library",
        ),
    ),
    3: (
        Example(
            "Wanda went into the chapel.\nWanda picked up the drum.\nWanda went into the library.\n"
            "Wanda went into the hall.",
            "Where was the drum before it was in the library?",
            "chapel",
        ),
    ),
    4: (
        Example(
            "The chapel lies directly north of the library.\nThe hall lies directly east of the library.",
            "Which place lies directly south of the chapel?",
            "library",
        ),
    ),
    5: (
        Example(
            "Wanda went into the chapel.\nViktor went into the chapel.\nWanda picked up the drum.\n"
            "Wanda gave the drum to Viktor.",
            "Who gave the drum to Viktor?",
            "Wanda",
        ),
    ),
    6: (
        Example(
            "Wanda went into the hall.\nViktor went into the library.\nWanda went into the chapel.",
            "Is Wanda in the chapel?",
            "yes",
        ),
        Example("Viktor went into the library.\nViktor went into the hall.", "Is Viktor in the library?", "no"),
    ),
    7: (
        Example(
            "Wanda went into the chapel.\nWanda picked up the drum.\nWanda put down the drum.",
            "How many things does Wanda carry?",
            "none",
        ),
        Example(
            "Viktor went into the hall.\nViktor picked up the lantern.\nWanda went into the hall.\n"
            "Viktor gave the lantern to Wanda.\nWanda picked up the drum.",
            "How many things does Wanda carry?",
            "two",
        ),
    ),
    8: (
        Example(
            "Wanda went into the chapel.\nWanda picked up the drum.\nWanda put down the drum.",
            "What does Wanda carry?",
            "nothing",
        ),
        Example(
            "Viktor went into the hall.\nViktor picked up the lantern.\nWanda went into the hall.\n"
            "Viktor gave the lantern to Wanda.\nWanda picked up the drum.",
            "What does Wanda carry?",
            "lantern, drum",
        ),
    ),
    9: (
        Example(
            "Wanda is not in the chapel now.\nViktor went into the library.\nWanda went into the chapel.",
            "Is Wanda in the chapel?",
            "yes",
        ),
        Example("Viktor went into the library.\nViktor is not in the library now.", "Is Viktor in the library?", "no"),
    ),
    10: (
        Example(
            "Wanda is now in the hall or in the chapel.\nWanda went into the hall.", "Is Wanda in the hall?", "yes"
        ),
        Example(
            "Viktor went into the library.\nViktor is now in the hall or in the chapel.",
            "Is Viktor in the library?",
            "no",
        ),
        Example(
            "Viktor went into the library.\nViktor is now in the hall or in the chapel.",
            "Is Viktor in the chapel?",
            "maybe",
        ),
    ),
}
