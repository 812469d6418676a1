"""Applies a function in several threads, and hands on each result as it is done.

    with Crew(8, ask) as crew:
        for done in crew.over(questions):        # at most 8 at work and 8 waiting, in the order of completion
            ...

Threads are daemons, so that Ctrl-C ends the process at once even while a server takes minutes to answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar, final

T = TypeVar("T")
R = TypeVar("R")


@final
class Crew(Generic[T, R]):
    """A number of threads that apply one function. After an error the `with` block ends without waiting for them."""

    def __init__(self, size: int, work: Callable[[T], R]) -> None:
        self.size, self.work = size, work
        self._todo: SimpleQueue[T | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[T, R | BaseException]] = SimpleQueue()

    def __enter__(self) -> Crew[T, R]:
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(self.size)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        for _ in range(self.size):
            self._todo.put(None)
        for thread in self._threads if kind is None else ():
            thread.join()

    def over(self, given: Iterable[T]) -> Iterator[tuple[T, R | BaseException]]:
        """Yields each item with its result, or with the exception that its work raised.

        Items are taken from `given` as places become free, so that they need not all be in memory.
        """
        open_ = 0
        for item in given:
            while open_ >= 2 * self.size:
                yield self._done.get()
                open_ -= 1
            self._todo.put(item)
            open_ += 1
        for _ in range(open_):
            yield self._done.get()

    def finished(self) -> Iterator[tuple[T, R | BaseException]]:
        """Yields what is done and was not yielded yet, without waiting."""
        with suppress(Empty):
            while True:
                yield self._done.get_nowait()

    def _run(self) -> None:
        while (item := self._todo.get()) is not None:
            try:
                result: R | BaseException = self.work(item)
            except BaseException as error:
                result = error
            self._done.put((item, result))
