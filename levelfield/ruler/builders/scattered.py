"""Scatters sentences over essays, at given shares of the text, until the prompt fills its length.

    essays = Essay.of(composer, sources.essays(None)).from_sentence(7)
    scattered(Scatter(essays, sentences, shares, head, rest), composer, room)

The sentences keep their order and stand between sentences of the essays. What is asked does not change with the length:
only the text between the sentences grows.
"""

from __future__ import annotations

from dataclasses import dataclass

from levelfield.ruler import sources
from levelfield.ruler.builders.haystack import Essay
from levelfield.ruler.prompt.compose import Composer, Piece, Pieces
from levelfield.ruler.prompt.fit import PromptDraft, fill_to_budget
from levelfield.ruler.prompt.setting import Setting


@dataclass(frozen=True)
class Scatter:
    """What is scattered over which essays. shares: of the essays before each sentence, ascending, in [0, 1]."""

    essays: Essay
    sentences: tuple[str, ...]
    shares: tuple[float, ...]
    head: Pieces  # before the text
    rest: Pieces  # after it

    def draft(self, size: int, tail: str) -> PromptDraft:
        """Drafts a prompt with `size` words of the essays and the beginning `tail` of one more.

        Its depths are those of all sentences, as shares of the essays' tokens.
        """
        places = [self.essays.boundary(share, size) for share in self.shares]
        inner = sum(place < size for place in places)
        chunks: list[list[str | Piece]] = []
        for begin, end, sentence in zip([0, *places], places[:inner], self.sentences):
            chunks.append(self.essays.text_between(begin, end))
            chunks.append([sentence])
        begin = places[inner - 1] if inner else 0
        chunks.append([*self.essays.text_between(begin, size), tail])  # which begins with its space
        for sentence in self.sentences[inner:]:
            chunks.append([sentence])
        pieces: list[str | Piece] = []
        for chunk in chunks:
            if any(chunk):
                pieces += [self.essays.joiner, *chunk] if pieces else chunk
        depths = tuple(self.essays.share(place, size) for place in places)
        return PromptDraft([*self.head, *pieces, *self.rest], (), depths)


def scattered(scatter: Scatter, composer: Composer, room: int) -> PromptDraft:
    """Returns the longest draft of at most `room` tokens, without references. Raises DoesNotFit."""
    return fill_to_budget(
        scatter.draft,
        composer,
        room,
        units_within=scatter.essays.units_within,
        following=scatter.essays.following,
    )


def essays_of(setting: Setting) -> Essay:
    """Tokenises the essays of a setting. Raises TokenBoundaryError."""
    return Essay.of(setting.composer, sources.essays(setting.sources.essays))
