"""Reads the chat template of a tokenizer and renders it, as transformers does and without it.

    template = read_chat_template(Path("models/Qwen3-8B"))
    template.around("Answer briefly.")       # the text before what the user says, and after it up to the answer

Templates are Jinja programs that came with a model's files, so they run in Jinja's sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from levelfield.spec import UserError

MARK = "levelfield-puts-the-task-here"
FILE = "chat_template.jinja"
TODAY = datetime(2024, 7, 26)
"""The date that templates may name: a fixed one, so that a question is the same question tomorrow."""
SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True)
class ChatTemplate:
    """A Jinja source, the special tokens that it may name, and the file that messages name."""

    source: str
    tokens: Mapping[str, str]
    path: str

    @property
    def bos(self) -> str:
        """The text of the token for the beginning of a sequence; "" where there is none."""
        return self.tokens.get("bos_token", "")

    def around(self, system: str = "", variables: Mapping[str, Any] | None = None) -> tuple[str, str]:
        """Returns the text before a user's message and after it, up to the beginning of the answer.

        variables: further names that the template reads, such as `enable_thinking`. Raises UserError where the template
        fails, or leaves out the message.
        """
        said = [{"role": "system", "content": system}] if system else []
        text = self.render([*said, {"role": "user", "content": MARK}], variables or {})
        before, mark, after = text.partition(MARK)
        if not mark or MARK in after:
            raise UserError(f"The chat template in {self.path} does not show a user's message once: use --ask chat.")
        return before, after

    def render(self, messages: list[dict[str, str]], variables: Mapping[str, Any]) -> str:
        """Writes a conversation and the beginning of the next answer. Raises UserError where the template fails."""
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        world = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        world.filters["tojson"] = _to_json
        world.globals |= {"raise_exception": _refuse, "strftime_now": TODAY.strftime}
        given = {**self.tokens, "messages": messages, "add_generation_prompt": True, "tools": None, **variables}
        try:
            return world.from_string(self.source).render(**given)
        except Exception as error:  # a template is a program, and may divide by zero
            raise UserError(f"The chat template in {self.path} cannot be used so ({error}).") from error


def read_chat_template(folder: Path, settings: Mapping[str, Any]) -> ChatTemplate | None:
    """Reads the template beside a tokenizer; None where there is none. settings: of tokenizer_config.json."""
    tokens = {name: text for name in SPECIAL if (text := _text(settings.get(name)))}
    if (file := folder / FILE).is_file():
        return ChatTemplate(file.read_text(encoding="utf-8"), tokens, str(file))
    source = settings.get("chat_template")
    if isinstance(source, list):  # several by name, as some models have them for tools
        named = {each.get("name"): each.get("template") for each in source if isinstance(each, dict)}
        source = named.get("default")
    return ChatTemplate(source, tokens, str(folder / "tokenizer_config.json")) if isinstance(source, str) else None


def _text(token: Any) -> str:
    """Returns the text of a special token, which may be an object that describes it."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else ""


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)
