"""The rounds of a worker that runs the user's own loop: begun by an assignment, ended by a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from orlomo.errors import ConfigError, require, warn
from orlomo.loop.attached import Attached
from orlomo.loop.data import LeasedIds, LeasedLoader
from orlomo.loop.messages import OWN, SHARED, DataFacts, Finished, Lease, Port, RoundFacts
from orlomo.methods.messages import Assignment, Report
from orlomo.methods.state import all_finite, fingerprint
from orlomo.seeds import derive, seed_global

T = TypeVar("T")


class RunFinished(Exception):
    """Raised by an optimizer step after the end of the run, in a loop that does not check `worker.done`.

    `with worker.attach(...)` catches it.

    >>> issubclass(RunFinished, Exception)
    True
    """


class Rounds:
    """What a worker does between the server and the user's loop."""

    def __init__(self, port: Port, attached: Attached, evaluates: bool):
        self._port, self.attached = port, attached
        self._assignment: Assignment | None = None
        self._data: DataFacts | None = None  # what was said when the first round began
        self._used: Lease | None = None  # of this round's lease, so far
        self._current: Lease | None = None  # this round's lease up to the batch at hand
        self._batches = 0  # of this round, so far
        self._delivered, self._count = 0, 0  # batches and rounds so far
        self._since_step, self._last_interval = 0, 0  # batches since the last optimizer step, and before it
        self._closed = self._warned = False
        self._follows = True  # the loop counts its epochs itself: those of the run are only followed
        self.done = False
        attached.on_step = self._stepped
        facts = replace(attached.facts, evaluates=evaluates)
        self._welcome = port.hello(facts, attached.vector(), attached.buffers())
        self._epoch, self.chief = self._welcome.epoch, self._welcome.chief
        attached.load(port.assigned, self._welcome.clock, self._welcome.epoch)

    def close(self) -> None:
        """Before the run's end: report what is done of the round, and leave."""
        if self._closed:
            return
        self._closed = True
        if not self.done:
            part = self._assignment is not None and self.attached.steps > 0
            self._port.leave(self._report() if part else None)
        self.attached.close()

    # What the loop iterates over

    def epochs(self) -> Iterator[int]:
        """Epochs of the run until its end."""
        self._follows = False
        while not self._ended():
            before = self._delivered, self._count
            yield self._epoch
            if self._ended():
                return
            require(
                (self._delivered, self._count) != before or self.attached.steps > 0,
                "an epoch of the loop ended without a batch or an optimizer step: iterate over worker.batches(loader)",
            )
            lease = self._lease
            if lease is None:
                self._epoch += 1
            elif lease.epoch > self._epoch:
                self._epoch = lease.epoch

    def shared(self, leased: LeasedLoader | LeasedIds, epochs: float | None) -> Iterator[Any]:
        """What the leases of this worker give in this epoch."""
        self._begin(leased.facts(epochs))
        self.settle()
        if self._ended():
            return
        assert self._assignment is not None
        if self._follows and self._lease is not None:
            self._epoch = max(self._epoch, self._lease.epoch)
        leased.queue.hold(self._assignment.order.leases)
        for batch, lease, stop in leased.iterate(self._epoch):
            self._current = lease._replace(stop=stop)
            self._delivered += 1
            self._since_step += 1
            try:
                yield batch
            except GeneratorExit:
                # The loop was left. What no optimizer step has used is delivered again.
                leased.queue.put_back(lease, lease.first if self._used is None else self._used.stop)
                self._batches += self._used == self._current
                self._current, self._since_step = None, 0
                raise
            self._used = self._current
            self._batches += 1
            if stop == lease.stop:
                if self._finish():
                    return
                leased.queue.hold(self._assignment.order.leases)

    def own(self, loader: Iterable[T], accumulate: int, epochs: float | None) -> Iterator[T]:
        """What the loader gives; a round is so many batches."""
        try:
            size = len(loader)  # type: ignore[arg-type]
        except TypeError:
            size = None
        self._begin(DataFacts(OWN, size, 1, accumulate, epochs))
        if self._ended():
            return
        for batch in loader:
            self._delivered += 1
            self._since_step += 1
            yield batch
            self._batches += 1
            assert self._assignment is not None
            if self._batches >= self._assignment.local_steps * accumulate and self._finish():
                return

    # Rounds

    @property
    def _lease(self) -> Lease | None:
        """What this round is to use."""
        order = None if self._assignment is None else self._assignment.order
        return order.leases[0] if order is not None and order.leases else None

    @property
    def at_last_batch(self) -> bool:
        """Whether the batch at hand is the last one of its round."""
        if self._assignment is None or self._data is None:
            return False
        if self._data.sampling == SHARED:
            return self._current is not None and self._current == self._lease
        return self._batches + 1 >= self._assignment.local_steps * self._data.accumulate

    @property
    def next_epoch(self) -> int:
        """The epoch that the next pass over the data begins in, or continues."""
        return self._epoch if self._lease is None else max(self._epoch, self._lease.epoch)

    @property
    def position(self) -> float:
        """How far the run is, in epochs, with the batch at hand."""
        if self._current is None or self._data is None or not self._data.size:
            return float(self._epoch)
        return self._current.epoch + self._current.stop / self._data.size

    def settle(self) -> None:
        """Report a round whose last batch has been used, where the loop was left with that batch."""
        if self._used is not None and self._used == self._lease:
            self._finish()

    @property
    def _counts_steps(self) -> bool:
        """Whether rounds end after optimizer steps: there are no batches."""
        return self._data is not None and self._data.steps_only

    def _ended(self) -> bool:
        return self.done

    def _begin(self, data: DataFacts) -> None:
        """Before the first round: say on what is trained."""
        if self._data is not None:
            if data != self._data:
                raise ConfigError("the loop trains on other data than when it began: use one loader all the time")
            return
        self._data = data
        self._take(self._port.begin(data))

    def _stepped(self) -> None:
        """The optimizer has made a step."""
        if self.done:
            raise RunFinished("the run is at its end: look at worker.done, or iterate over worker.batches(loader)")
        if self._data is None:  # no batches in this loop: a round is so many steps
            self._begin(DataFacts(OWN, None, steps_only=True))
            if self._ended():
                return
        if self._counts_steps:
            assert self._assignment is not None
            if self.attached.steps >= self._assignment.local_steps:
                self._finish()
            return
        self._used = self._used if self._current is None else self._current
        self._check_accumulation()
        self._since_step = 0

    def _check_accumulation(self) -> None:
        """Warn where the loop makes its steps after another number of batches than it said, twice in a row.

        Once is no sign: a GradScaler skips steps, and an epoch may end between two.
        """
        assert self._data is not None
        interval, before, self._last_interval = self._since_step, self._last_interval, self._since_step
        if interval == self._data.accumulate or interval != before or interval == 0 or self._warned:
            return
        self._warned = True
        steps = "" if self._assignment is None else f", not {self._assignment.local_steps} steps"
        warn(
            f"the loop makes an optimizer step every {interval} batches, but accumulate={self._data.accumulate}: "
            f"rounds have another length{steps}; write worker.batches(loader, accumulate={interval})"
        )

    def _finish(self) -> bool:
        """Report, and begin the next round; whether there is none, because the run is at its end."""
        self._take(self._port.report(self._report()))
        return self.done

    def _report(self) -> Report:
        port, assignment, data = self._port, self._assignment, self._data
        assert assignment is not None
        assert data is not None
        steps, rate = self.attached.measure(port.assigned, port.reported)
        used = self._used
        samples = steps if data.steps_only else self._batches
        if data.sampling == SHARED:
            samples = 0 if used is None else used.samples
        return Report(
            port.settings.worker,
            assignment.index,
            samples=samples,
            round=assignment.round,
            buffers=self.attached.buffers(),
            finite=all(all_finite(vector) for vector in port.reported.values()),
            facts=RoundFacts(
                steps,
                self._batches,
                used,
                fingerprint(port.reported.values()),
                port.settings.rank,
                assignment.order.chief,
                self._welcome.events,
            ),
            learning_rate=rate,
        )

    def _take(self, answer: Assignment | Finished) -> None:
        """Begin the next round, or end."""
        port, attached = self._port, self.attached
        self._used, self._current, self._batches = None, None, 0
        self._count += 1
        first, self._assignment = self._assignment is None, None
        if isinstance(answer, Finished):
            self.done, self.chief = True, answer.chief
            buffers = port.buffers if attached.facts.buffers else None
            attached.finish(port.assigned["params"], buffers, answer.clock, answer.epoch)
            return
        self._assignment, order = answer, answer.order
        self.chief = order.chief
        # A step that was made before the first assignment counts if it began at the same parameters.
        if not (first and answer.index == self._welcome.index):
            attached.load(port.assigned, order.clock, order.epoch)
        # As a function of the round, so that a replay, or another worker in its place, draws the same numbers.
        rank = (port.settings.group_rank,) if port.settings.group_rank else ()  # each of a group draws its own
        seed_global(derive(port.settings.seed, "loop", answer.worker, answer.round, *rank))
