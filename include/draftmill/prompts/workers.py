"""Worker processes for preparation: results come back in the order of the tasks, and no worker outlives its parent.

Workers are spawned, not forked: the parent has threads (Arrow, tokenizers), and a fork of those may deadlock. They find draftmill by the
parent's `sys.path`, which for a zipapp is the zipapp. A worker only reads from its own pipe, so the kernel ends it with its parent,
however that dies. `concurrent.futures` gives neither: its workers wait forever on a queue whose writing end they hold themselves.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, TypeVar

from draftmill.errors import StoppedError, TemporaryError

R = TypeVar("R")

_QUEUED = 2
"""Tasks a worker may have: one in work, one waiting in its pipe."""
_AHEAD = 4
"""Tasks per worker that may be drawn and not yet handed out."""
_TICK_S = 0.5
_LEAVE_S = 2.0
_STOPPED = "stopped on request; the prompts that were there before are unchanged"


def _serve(pipe: Connection) -> None:
    """A worker's life: take a task, send back (True, result) or (False, error), until the parent hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # One thread a process: the processes are what runs in parallel.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            answer = (True, task())
        except Exception as error:  # noqa: BLE001 - handed to the parent, which raises it
            answer = (False, error)
        try:
            pipe.send(answer)
        except BrokenPipeError:
            return


class Workers:
    """A pool that keeps order. With `count` 0 tasks run in this process, which costs nothing to start.

    waiting: called every half second while nothing has come back.
    """

    def __init__(self, count: int, stop: threading.Event, waiting: Callable[[], None] = lambda: None) -> None:
        self._stop = stop
        self._waiting = waiting
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        context = multiprocessing.get_context("spawn")
        for number in range(count):
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), name=f"prepare-{number}", daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(mine)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for pipe in self._pipes:
            pipe.close()
        # Idle workers end by themselves, in order; one that still works on a task nobody waits for is not worth waiting for.
        patience = time.monotonic() + _LEAVE_S
        for process in self._processes:
            process.join(max(0.0, patience - time.monotonic()))
        for process in self._processes:
            process.terminate()
            process.join()

    def each(self, task: Callable[[], R]) -> R:
        """Run `task` once in every process, as for loading what all of them need; the answer of one of them."""
        answers = list(self.run([task] * max(1, len(self._pipes))))
        return answers[0]

    def run(self, tasks: Iterable[Callable[[], R]]) -> Iterator[R]:
        """Results of `tasks` (partials of module-level functions), in their order; tasks are drawn as they are needed.

        Raises what a task raised, StoppedError once a stop was asked for, TemporaryError where a worker died.
        """
        if self._pipes:
            yield from self._run(iter(tasks))
            return
        for task in tasks:
            if self._stop.is_set():
                raise StoppedError(_STOPPED)
            yield task()

    def _run(self, tasks: Iterator[Callable[[], R]]) -> Iterator[R]:
        given: list[deque[int]] = [deque() for _ in self._pipes]
        try:
            yield from self._in_order(tasks, given)
        except _Lost as lost:
            raise lost.why from None
        except BaseException:
            # Answers that nobody wants any more must not be taken for those of the next tasks.
            while any(given):
                self._receive(given)
            raise

    def _in_order(self, tasks: Iterator[Callable[[], R]], given: list[deque[int]]) -> Iterator[R]:
        finished: dict[int, R] = {}
        drawn = handed_out = 0
        while True:
            # Not far ahead of what is handed out: one slow task must not pile up the results of all others.
            room = _AHEAD * len(self._pipes) - (drawn - handed_out)
            for task in itertools.islice(tasks, min(room, sum(_QUEUED - len(queue) for queue in given))):
                worker = min(range(len(given)), key=lambda index: len(given[index]))
                self._send(worker, task)
                given[worker].append(drawn)
                drawn += 1
            while handed_out in finished:
                yield finished.pop(handed_out)
                handed_out += 1
            if handed_out == drawn:
                return
            self._collect(given, finished)

    def _send(self, worker: int, message: Any) -> None:
        try:
            self._pipes[worker].send(message)
        except BrokenPipeError:
            raise self._died(worker) from None

    def _collect(self, given: list[deque[int]], finished: dict[int, Any]) -> None:
        """Wait for results; none come where it takes longer than a tick. Raises the first error among them."""
        errors = []
        for number, fine, answer in self._receive(given):
            if fine:
                finished[number] = answer
            else:
                errors.append(answer)
        if errors:
            raise errors[0]

    def _receive(self, given: list[deque[int]]) -> list[tuple[int, bool, Any]]:
        """(number of the task, whether it went well, result or error) of all that is there, after a tick at the latest."""
        ready = wait(self._pipes, timeout=_TICK_S)
        if self._stop.is_set():
            raise _Lost(StoppedError(_STOPPED))
        if not ready:
            self._waiting()
        received = []
        for pipe in ready:
            worker = self._pipes.index(pipe)  # type: ignore[arg-type]
            try:
                fine, answer = self._pipes[worker].recv()
            except (EOFError, ConnectionResetError):
                raise self._died(worker) from None
            received.append((given[worker].popleft(), fine, answer))
        return received

    def _died(self, worker: int) -> _Lost:
        process = self._processes[worker]
        process.join(timeout=5)
        if self._stop.is_set():
            return _Lost(StoppedError(_STOPPED))
        hint = "out of memory?); retry, or set DRAFTMILL_PROCESSES lower"
        return _Lost(TemporaryError(f"a preparation process ended with code {process.exitcode} ({hint}"))


class _Lost(Exception):  # noqa: N818 - carries the error that is raised in the end
    """The pool cannot go on: nobody waits for what is still in work."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why
