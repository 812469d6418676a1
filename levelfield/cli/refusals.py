"""Says in one sentence what is wrong with the words of a command, where tyro would print a box.

    sentence(shown, "levelfield plan")      # "levelfield plan has no option --efort: did you mean '--effort'?"

Tyro words its refusals for a terminal, wrapped and framed; this unwraps them and keeps what a user needs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from levelfield.spec import UserError, closest

FRAME = re.compile(r"\x1b\[[0-9;]*m|[│╭╮╰╯─┌┐└┘]|-{20,}")

NAME = re.compile("--|[A-Z]")  # how a flag begins, and how what stands without one
EXAMPLES = {"MIXER": "my_mixer.py:MyMixer", "DATA": "listops", "STUDY": "demo", "TASK": "listops"}


class Unreadable(UserError):
    """The error for a word that is no value of its flag. text: the word, with which the message begins."""

    def __init__(self, text: str, message: str) -> None:
        super().__init__(message)
        self.text = text


def with_flag(error: Unreadable, words: Sequence[str]) -> UserError:
    """Returns the error with the flag that the word was given to; with all of them where several were."""
    flag, found = "", []
    for word in words:
        value = word
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            if not equals:
                continue
        found += [flag] if flag and value == error.text else []
    named = " or ".join(dict.fromkeys(found))
    return UserError(f"{named} {error}".strip())


def unknown_option(words: Sequence[str], shown: str, command: str) -> str:
    """Returns a sentence about the first option that a command has not, "" where it has all; tyro says of such a one
    before a word only that the word is missing. shown: what --help prints of the command."""
    before = words[: words.index("--")] if "--" in words else words
    options = [word.partition("=")[0] for word in before if re.match("--[a-z]", word)]
    known = {"--help", *re.findall(r"(?<![\w-])--[a-z][\w-]*", shown)}
    unknown = next((option for option in options if option.replace("_", "-") not in known), "")
    near = get_close_matches(unknown.strip("-"), sorted(option.strip("-") for option in known), 1)
    fix = f"did you mean '--{near[0]}'?" if near else f"`{command} --help` lists its options."
    return f"{command} has no option {unknown}: {fix}" if unknown else ""


def sentence(shown: str, command: str) -> str:
    """Returns what tyro has shown about the words of a command as one sentence with the fix."""
    lines = [line for line in FRAME.sub("", shown).splitlines() if line.strip()]
    flat = " ".join(" ".join(lines).split())
    if found := re.search(r"Unrecognized options: (\S+?),?(?: |$)", flat):
        return _unknown(found[1], flat, command)
    if found := re.search(r"invalid choice '(.*?)' for argument '(\S+?)'\. Expected one of \((.*?)\)", flat):
        choices = sorted(set(re.findall(r"'([^']*)'", found[3])) - {"None"})
        return f"{found[2]} cannot be '{found[1]}': {closest(found[1], choices)}"
    if found := re.search(r"Missing value for argument '(\S+?)'", flat):
        return f"{found[1]} needs a value: `{command} --help` says which."
    if "Missing from" in flat:
        return f"{command} needs {_missing(lines) or 'more'}: `{command} --help` says what."
    return f"{flat.partition(' For full helptext')[0].rstrip('.')}: see `{command} --help`."


def _missing(lines: list[str]) -> str:
    """Returns what is missing, with an example where there is one: of the lines below the heading, those as deep as the
    first. What lies deeper is their help, whose lines may begin with anything."""
    below = lines[next(i for i, line in enumerate(lines) if "Missing from" in line) + 1 :]
    depths = [len(line) - len(line.lstrip()) for line in below]
    given = zip(depths, below, strict=True)
    names = [line.split()[0].rstrip(",") for depth, line in given if depth == depths[0] and NAME.match(line.strip())]
    return " and ".join(f"{n}, such as {EXAMPLES[n]}" if n in EXAMPLES else n for n in dict.fromkeys(names))


def _unknown(word: str, flat: str, command: str) -> str:
    if not word.startswith("-"):
        return f"{command} takes no further word '{word}': `{command} --help` shows what it takes."
    if re.search(rf"Perhaps you meant: (?:-\w, )?{re.escape(word)}(?![\w-])", flat):
        return f"{word} stands after '--', which ends the options of {command}: write options before it."
    return f"{command} has no option {word}: `{command} --help` lists its options."
