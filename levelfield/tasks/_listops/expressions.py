"""Draws, evaluates, tokenises and permutes ListOps expressions, in compiled code.

An expression is stored in prefix order without parentheses, one byte per token; 0-9 are digits:

    [MAX 2 9 [MIN 4 7 ] 0 ]   =   10 2 9 12 4 7 14 0 14

Random numbers are counter-based (SplitMix64), so that expression `i` of a seed does not depend on the block or thread
that draws it. All functions release the interpreter's lock.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from levelfield.jit import compiled
from levelfield.jit.splitmix import STEP, mix

MAX, MED, MIN, SM, CLOSE = 10, 11, 12, 13, 14
MALFORMED = -1  # in place of a label
_HIGH = np.uint64(32)
_mix = compiled(mix)


@compiled
def _below(bits: np.uint64, n: int) -> np.int64:
    """Maps the upper half of `bits` to 0..n-1; probabilities are off by less than n in 2^32."""
    return np.int64(((bits >> _HIGH) * np.uint64(n)) >> _HIGH)


@compiled
def _draw(out: np.ndarray, open_: np.ndarray, state: np.uint64, length: int, max_depth: int, max_args: int) -> Any:
    """Draws a tree below an operator into `out`; returns its size, 0 if it reaches `length`, and the next state.

    A node above the deepest level is an operator with probability 1/4, with 2..max_args arguments. `certain` counts the
    tokens that the tree will have at least, so that a tree that would be too long stops early. Each node takes one
    random number: two bits choose operator or digit, two choose the operator, and the upper half chooses the number of
    arguments or the digit.
    """
    certain, size, depth = 1, 0, 1
    open_[1] = 1  # open_[d]: number of nodes still to draw at depth d
    while True:
        state += STEP
        bits = _mix(state)
        open_[depth] -= 1
        if depth == 1 or (depth < max_depth and bits & np.uint64(3) == np.uint64(0)):
            arguments = 2 + _below(bits, max_args - 1)
            certain += arguments + 1
            if certain >= length:
                return 0, state
            out[size] = MAX + np.int64((bits >> np.uint64(2)) & np.uint64(3))
            size += 1
            depth += 1
            open_[depth] = arguments
            continue
        out[size] = _below(bits, 10)
        size += 1
        while open_[depth] == 0:
            out[size] = CLOSE
            size += 1
            depth -= 1
            if depth == 1:
                return size, state


@compiled
def draw(seed: int, first: int, count: int, minimum: int, length: int, max_depth: int, max_args: int) -> Any:
    """Draws expressions `first`..`first + count - 1` of a seed, with minimum < tokens < length.

    Returns their tokens end to end, (total,) uint8, and offsets, (count + 1,) int64. Whole trees are drawn until one
    fits, as in the official generator; the caller makes sure that some do.
    """
    out = np.empty(count * (length - 1), np.uint8)
    offsets = np.zeros(count + 1, np.int64)
    open_ = np.empty(max_depth + 1, np.int64)
    for i in range(count):
        state = _mix(np.uint64(seed) + _mix(np.uint64(first + i) + STEP))
        size = 0
        while size <= minimum:
            size, state = _draw(out[offsets[i] :], open_, state, length, max_depth, max_args)
        offsets[i + 1] = offsets[i] + size
    return out[: offsets[count]].copy(), offsets


@compiled
def _apply(operator: int, total: int, counts: np.ndarray) -> int:
    """Evaluates an operator. counts: (10,), how often each digit occurs among its `total` arguments.

    The median of an even number of arguments is rounded down.
    """
    sum_, low, high = 0, -1, -1
    for digit in range(10):
        sum_ += digit * counts[digit]
        if counts[digit]:
            low = digit if low < 0 else low
            high = digit
    if operator == SM:
        return sum_ % 10
    if operator == MIN:
        return low
    if operator == MAX:
        return high
    seen, lower = 0, -1
    for digit in range(10):
        seen += counts[digit]
        if lower < 0 and seen >= (total + 1) // 2:
            lower = digit
        if seen >= total // 2 + 1:
            return (lower + digit) // 2
    return MALFORMED


@compiled
def survey(x: np.ndarray, offsets: np.ndarray) -> Any:
    """Evaluates expressions: labels (N,) int64, depths of nested operators (N,) uint8, and hashes (N,) uint64.

    x: (total,) tokens, offsets: (N + 1,). A label is MALFORMED where the tokens are not an expression.
    """
    count = len(offsets) - 1
    labels = np.full(count, MALFORMED, np.int64)
    depths, keys = np.zeros(count, np.uint8), np.zeros(count, np.uint64)
    deepest = 1
    for i in range(count):
        deepest = max(deepest, offsets[i + 1] - offsets[i])
    operators, arguments = np.empty(deepest, np.int64), np.empty(deepest, np.int64)
    counts = np.empty((deepest, 10), np.int64)
    for i in range(count):
        depth, key, value = 0, np.uint64(0), MALFORMED
        for at in range(offsets[i], offsets[i + 1]):
            token = np.int64(x[at])
            key = _mix((key ^ np.uint64(token)) + STEP)
            if value != MALFORMED or (depth == 0 and token == CLOSE):
                value = MALFORMED  # tokens after the end, or an unmatched closing bracket
                depth = -1
                break
            if MAX <= token <= SM:
                operators[depth] = token
                arguments[depth] = 0
                for digit in range(10):
                    counts[depth, digit] = 0
                depth += 1
                depths[i] = max(depths[i], min(depth, 255))
                continue
            if token == CLOSE:
                depth -= 1
                if arguments[depth] == 0:
                    depth = -1
                    break
                token = _apply(operators[depth], arguments[depth], counts[depth])
            if depth:
                counts[depth - 1, token] += 1
                arguments[depth - 1] += 1
            else:
                value = token
        labels[i] = value if depth == 0 else MALFORMED
        keys[i] = key
    return labels, depths, keys


@compiled
def tokenize(text: np.ndarray, out: np.ndarray) -> int:
    """Tokenises an expression, without its parentheses, and returns the number of tokens written to `out`.

    text: its bytes, with blanks between tokens. Returns -1 - p where the token at byte p is unknown.
    """
    at, size = 0, 0
    while at < len(text):
        if text[at] == 32:
            at += 1
            continue
        start = at
        while at < len(text) and text[at] != 32:
            at += 1
        token = _symbol(text[start:at])
        if token == MALFORMED:
            return -1 - start
        if token <= CLOSE:
            out[size] = token
            size += 1
    return size


@compiled
def _symbol(word: np.ndarray) -> Any:
    """Returns the id of a written token: CLOSE + 1 for a parenthesis, MALFORMED for an unknown token."""
    first = word[0]
    if len(word) == 1:
        if 48 <= first <= 57:
            return np.int64(first) - 48
        if first == 93:  # ]
            return CLOSE
        return CLOSE + 1 if first == 40 or first == 41 else MALFORMED
    if first != 91:  # [
        return MALFORMED
    if len(word) == 3:
        return SM if word[1] == 83 and word[2] == 77 else MALFORMED
    if len(word) != 4 or word[1] != 77:  # M
        return MALFORMED
    if word[2] == 65 and word[3] == 88:
        return MAX
    if word[2] == 69 and word[3] == 68:
        return MED
    return MIN if word[2] == 73 and word[3] == 78 else MALFORMED


@compiled
def permute(x: np.ndarray, lengths: np.ndarray, seed: int, out: np.ndarray) -> int:
    """Writes expressions to `out` with the arguments of every operator in uniformly random order.

    x, out: (B, T); a row of `out` is unchanged beyond its length. Returns -1, or the first row that is not a complete
    expression.
    """
    ends, waiting = np.empty(x.shape[1], np.int64), np.empty(x.shape[1] + 1, np.int64)
    for row in range(len(x)):
        tokens = x[row, : lengths[row]]
        if not _match(tokens, ends, waiting):
            return row
        state = _mix(np.uint64(seed) + _mix(np.uint64(row) + STEP))
        _emit(tokens, ends, waiting, state, out[row])
    return -1


@compiled
def _match(tokens: np.ndarray, ends: np.ndarray, opened: np.ndarray) -> bool:
    """Sets `ends[i]` to the last token of the argument that begins at i; returns False if brackets do not match."""
    depth = 0
    for at in range(len(tokens)):
        token = tokens[at]
        if at and depth == 0:
            return False
        ends[at] = at
        if MAX <= token <= SM:
            opened[depth] = at
            depth += 1
        elif token == CLOSE:
            if depth == 0:
                return False
            depth -= 1
            ends[opened[depth]] = at
    return len(tokens) > 0 and depth == 0


@compiled
def _emit(tokens: np.ndarray, ends: np.ndarray, waiting: np.ndarray, state: np.uint64, out: np.ndarray) -> None:
    """Writes the tree depth first. `waiting` is a stack of the positions at which parts still to be written begin."""
    waiting[0], held, size = 0, 1, 0
    while held:
        held -= 1
        at = waiting[held]
        out[size] = tokens[at]
        size += 1
        if not MAX <= tokens[at] <= SM:
            continue
        waiting[held] = ends[at]
        first = held = held + 1
        child = at + 1
        while child < ends[at]:
            # Inside-out Fisher-Yates: each new argument takes a random place, and the one there moves to the end.
            state += STEP
            place = first + _below(_mix(state), held - first + 1)
            waiting[held] = waiting[place]
            waiting[place] = child
            held += 1
            child = ends[child] + 1
