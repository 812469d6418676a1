"""Applies a function in several threads, and hands on each result as it is done.

    with Crew(8, ask) as crew:
        for done in crew.over(questions):        # at most 8 at work and 8 waiting, in the order of completion
            ...

`Ahead` iterates in a thread of its own, and yields None while its next item takes long to make, so that `over` can hand
on what is done meanwhile. Threads are daemons, so that Ctrl-C ends the process at once even while a server takes
minutes to answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Empty, Full, Queue, SimpleQueue
from typing import Generic, TypeVar, final

WAIT_S = 0.2  # for an item that is being made, before whoever waits looks at what is done

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

    def over(self, given: Iterable[T | None]) -> Iterator[tuple[T, R | BaseException]]:
        """Yields each item with its result, or with the exception that its work raised.

        Items are taken from `given` as places become free, so that they need not all be in memory. None among them says
        that the next one is still being made.
        """
        open_ = 0
        for item in given:
            for done in self.finished():
                yield done
                open_ -= 1
            if item is None:
                continue
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


@final
class Ahead(Generic[T]):
    """Iterates in a thread of its own, one item ahead of whoever reads. Exceptions reach the reader, and so does None
    where an item takes longer than WAIT_S to come.

    The thread ends with the `with` block, after the item that it is at.
    """

    def __init__(self, given: Iterable[T]) -> None:
        self.given = given
        self._made: Queue[tuple[T] | BaseException | None] = Queue(maxsize=1)
        self._left = threading.Event()

    def __enter__(self) -> Iterator[T | None]:
        threading.Thread(target=self._run, daemon=True).start()
        return self._read()

    def __exit__(self, *error: object) -> None:
        self._left.set()

    def _read(self) -> Iterator[T | None]:
        while True:
            try:
                made = self._made.get(timeout=WAIT_S)
            except Empty:
                yield None
                continue
            if made is None:
                return
            if isinstance(made, BaseException):
                raise made
            yield made[0]

    def _run(self) -> None:
        try:
            for item in self.given:
                if not self._put((item,)):
                    return
            self._put(None)
        except BaseException as error:
            self._put(error)

    def _put(self, made: tuple[T] | BaseException | None) -> bool:
        """Hands an item on as soon as there is room. Returns False where nobody reads any more."""
        while not self._left.is_set():
            with suppress(Full):
                self._made.put(made, timeout=0.1)
                return True
        return False
