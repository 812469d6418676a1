"""Finds the text around a task: of a named template, of the tokenizer's own chat template, or of the server's.

wrapping_for(Way("text"), "meta-chat", tokenizer)     # "[INST] " and " [/INST]"
wrapping_for(Way("ids"), "own", tokenizer)            # the tokenizer's own, with its special tokens as text
wrapping_for(Way("chat"), "base", tokenizer)          # as the server will wrap it, so that lengths are exact
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.served.lengths import is_exact
from levelfield.longcontext.served.way import PLACEHOLDER, Way, Wrapping
from levelfield.ruler.prompt.templates import TEMPLATES, split
from levelfield.spec import UserError, closest
from levelfield.tokenizer import Tokenizer

if TYPE_CHECKING:
    from levelfield.pretrained.tokenizers.chat_template import ChatTemplate

OWN = "own"
USUAL = Way()


def wrapping_for(way: Way, template: str, tokenizer: Tokenizer) -> Wrapping:
    """Returns the text around the task for this way of asking. Raises UserError where the two do not go together."""
    own: ChatTemplate | None = getattr(tokenizer, "chat_template", None)
    if way.by == "ids" and not is_exact(tokenizer):
        raise UserError("To ask by token ids, name the model's own --tokenizer: an approximation has no ids.")
    if way.chat:
        if template not in ("base", OWN):
            raise UserError(f"In a chat the server writes the template: leave out --template {template}.")
        return Wrapping(OWN, *own.around(way.system, way.variables)) if own else Wrapping("", *PLACEHOLDER)
    if template != OWN:
        if way.system:
            raise UserError("A system prompt needs a chat template: add --template own, or --ask chat.")
        check_template(template)
        return Wrapping(template, *split(template))
    if own is None:
        raise UserError(f"The tokenizer {tokenizer.name} has no chat template: name the model's own with --tokenizer.")
    before, after = own.around(way.system, way.variables)
    if way.by != "ids" and own.bos and getattr(tokenizer, "bos_ids", ()):
        before = before.removeprefix(own.bos)  # the server puts it before every text itself
    return Wrapping(OWN, before, after)


def check_template(template: str) -> None:
    """Raises UserError for a template that is neither one of RULER's nor the tokenizer's own."""
    if template not in (*TEMPLATES, OWN):
        raise UserError(f"There is no template '{template}': {closest(template, [*TEMPLATES, OWN])}")


def with_own_template(evaluation: Evaluation, tokenizer: Tokenizer, way: Way = USUAL) -> Evaluation:
    """Returns the evaluation as a model that is loaded reads it, with the tokenizer's own chat template where that is
    asked for. way: its system prompt and tokens to think. Raises UserError for a tokenizer that has no template."""
    if evaluation.template != OWN:
        return evaluation
    label = OWN if way == USUAL else way.label(OWN)
    return replace(evaluation, template=label, around=wrapping_for(way, OWN, tokenizer).around, thinking=way.thinking)
