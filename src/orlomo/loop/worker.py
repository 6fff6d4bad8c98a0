"""A training loop of the user's own as a worker: `orlomo.worker()`, attached to a model and its optimizer.

A round begins when the server's parameters are loaded, and ends between two batches, or, where no `batches` are used,
after an optimizer step. In a script that is started alone a worker does nothing, and the loop runs as without it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Self, TypeVar, cast

from torch import nn
from torch.utils.data import DataLoader

from orlomo.errors import ConfigError, OrlomoError, require, warn
from orlomo.loop.attached import Attached
from orlomo.loop.data import LeasedLoader
from orlomo.loop.messages import OWN, SHARED, DataFacts, EvaluationPort, Finished, Lease, Port, RoundFacts
from orlomo.methods.messages import Assignment, Report
from orlomo.methods.state import all_finite
from orlomo.seeds import derive, seed_global

T = TypeVar("T")

SERVER = "ORLOMO_SERVER"
"""Set in the processes of a run's workers, and so in those that they start."""

Evaluate = Callable[[], "float | Mapping[str, float]"]


class RunFinished(Exception):
    """Raised by an optimizer step after the run's end, in a loop that does not look whether the run has ended."""


_worker: Worker | None = None
"""That of this process."""


def connect(port: Port) -> None:
    """Make this process the worker at the other end of a port."""
    global _worker
    _worker = Worker(port)


def current() -> Worker | None:
    """This process's worker, if there is one."""
    return _worker


def worker() -> Worker:
    """This process as a worker of a run; in a script that is started alone, one that does nothing.

    >>> import orlomo, torch
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    >>> loader = torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=4)
    >>> worker = orlomo.worker()
    >>> with worker.attach(model, optimizer):
    ...     for epoch in worker.epochs(2):
    ...         for x in worker.batches(loader):
    ...             model(x).square().mean().backward()
    ...             optimizer.step()
    ...             optimizer.zero_grad()
    >>> worker.alone, worker.done
    (True, False)
    """
    global _worker
    if _worker is None:
        if os.environ.get(SERVER):
            raise OrlomoError(
                f"{SERVER} is set, but this process is no worker of that run and cannot reach its server: start the "
                f"script with `orlomo run`, or take {SERVER} away to train alone"
            )
        _worker = Worker(None)
        print("orlomo: started alone, training as without orlomo (see `orlomo run --help`)", file=sys.stderr)
    return _worker


class Worker:
    """One worker of a run, in the process in which the user's loop runs. Made by `orlomo.worker()`.

    >>> import orlomo
    >>> worker = orlomo.worker()  # started alone
    >>> list(worker.epochs(2)), worker.chief
    ([0, 1], True)
    """

    def __init__(self, port: Port | None):
        self._port = port
        self._attached: Attached | None = None
        self._assignment: Assignment | None = None
        self._leased: dict[int, LeasedLoader] = {}  # by the id of the user's data loader
        self._data: DataFacts | None = None  # what was said when the first round began
        self._epochs: float | None = None  # as the loop says
        self._follows = True  # the loop counts its epochs itself: those of the run are only followed
        self._epoch = 0
        self._used: Lease | None = None  # of this round's lease, so far
        self._batches = 0  # of this round, so far
        self._waiting = 0  # batches since the last optimizer step
        self._current: Lease | None = None  # this round's lease up to the batch at hand
        self._delivered, self._rounds = 0, 0  # batches and rounds so far
        self._chief, self._done, self._closed = port is None, False, False
        self._warned = False

    @property
    def alone(self) -> bool:
        """Whether the script was started alone, without a server."""
        return self._port is None

    @property
    def done(self) -> bool:
        """Whether the run is at its end: the model holds its final parameters. Never in a script started alone."""
        return self._done

    @property
    def chief(self) -> bool:
        """Whether this is the worker that should save and print: of those that take part, the one in the lowest rank.

        True in a script that is started alone.
        """
        return self._chief

    @property
    def last_of_round(self) -> bool:
        """Whether the batch at hand is the last one of its round: where gradients are accumulated, step here too.

        Never in a script that is started alone.
        """
        if self._assignment is None or self._data is None:
            return False
        if self._data.sampling == SHARED:
            return self._current is not None and self._current == self._lease
        return self._batches + 1 >= self._assignment.local_steps * self._data.accumulate

    @property
    def attached(self) -> bool:
        """Whether `attach` has been called. Never in a script that is started alone."""
        return self._attached is not None

    @property
    def id(self) -> int:
        """The number of this worker in the run's record; 0 in a script that is started alone."""
        return 0 if self._port is None else self._port.settings.worker

    def attach(
        self,
        model: nn.Module | Sequence[nn.Module],
        optimizer: Any,
        *,
        scheduler: Any = None,
        unit: str = "step",
        state: str = "keep",
        evaluate: Evaluate | None = None,
    ) -> Self:
        """Let the run train this model: its parameters become the server's, now and at the start of every round.

        Also a context manager; without `with`, the script's end or `close()` ends the worker's part.

        Args:
            model: a module, or a list of them.
            optimizer: an optimizer, or a list of them. It has the learning rate, and keeps its state between rounds.
            scheduler: one, or a list of them, stepped by the run's progress: the script's own calls of `step` do
                nothing. `unit`: whether it counts every "step" (of all workers together) or every "epoch".
            state: of the optimizer: "keep" it between rounds, or "reset" it at the start of each.
            evaluate: called without arguments, in a process of its own, with the server's parameters in the model; it
                returns a number, or numbers by name.
        """
        require(self._attached is None, "this worker is attached already: give all models and optimizers in one call")
        require(unit in ("step", "epoch"), f'unit must be "step" or "epoch", not {unit!r}')
        require(state in ("keep", "reset"), f'state must be "keep" or "reset", not {state!r}')
        require(evaluate is None or callable(evaluate), f"evaluate must be a function, not {evaluate!r}")
        port = self._port
        if port is None:
            return self
        method = port.settings.method
        self._attached = attached = Attached(
            model, optimizer, method, scheduler=scheduler, unit=unit, state=state, on_step=self._stepped
        )
        facts = replace(attached.facts, evaluates=evaluate is not None)
        welcome = port.hello(facts, attached.vector(), attached.buffers())
        self._epoch, self._chief = welcome.epoch, welcome.chief
        self._welcome = welcome
        attached.load(port.assigned, welcome.clock, welcome.epoch)
        if port.settings.evaluates:
            from orlomo.loop.evaluating import serve

            assert evaluate is not None
            serve(cast("EvaluationPort", port), attached, evaluate)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if kind is None or isinstance(error, RunFinished):
            self.close()
            return isinstance(error, RunFinished)
        return False  # what the loop raised ends the worker: a crash, with its traceback

    def close(self) -> None:
        """End this worker's part: before the run's end it reports what it has done of its round, and leaves."""
        port, attached = self._port, self._attached
        if port is None or attached is None or self._closed:
            return
        self._closed = True
        if not self._done:
            report = None
            if self._assignment is not None and self._attached_steps:
                report = self._report()
            port.leave(report)
        attached.close()

    # The loop

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs of the run, `count` all in all; a worker that joins late begins at the run's epoch.

        They end when the run does. A worker may miss an epoch whose samples the others have used.
        """
        require(isinstance(count, int) and count >= 1, f"epochs takes a whole number of at least 1, not {count!r}")
        if self._port is None:
            yield from range(count)
            return
        self._check_attached("epochs")
        self._epochs, self._follows = count, False
        while not self._ended():
            before = self._delivered, self._rounds
            yield self._epoch
            if self._ended():
                return
            # Left before its end, an epoch continues: its samples are still to be used. Without `batches` an epoch is
            # whatever the loop does in one.
            require(
                (self._delivered, self._rounds) != before or self._attached_steps > 0,
                "an epoch of the loop ended without a batch or an optimizer step: iterate over worker.batches(loader)",
            )
            lease = self._lease
            if lease is None:
                self._epoch += 1
            elif lease.epoch > self._epoch:
                self._epoch = lease.epoch

    def batches(
        self, loader: Iterable[T], *, accumulate: int = 1, sampling: str = SHARED, epochs: float | None = None
    ) -> Iterable[T]:
        """The batches of this worker, from the user's data loader.

        Args:
            accumulate: batches per optimizer step, where gradients are accumulated.
            sampling: "shared": all workers share the samples, each of which is used once per epoch, whatever happens
                to workers. "own": whatever the loader gives, in each worker.
            epochs: how many the run has, in a loop that does not iterate over `worker.epochs`.
        """
        require(isinstance(accumulate, int) and accumulate >= 1, f"accumulate must be at least 1, not {accumulate!r}")
        require(sampling in (SHARED, OWN), f'sampling must be "shared" or "own", not {sampling!r}')
        if self._port is None:
            return loader
        self._check_attached("batches")
        self._epochs = self._epochs if epochs is None else epochs
        return self._shared(loader, accumulate) if sampling == SHARED else self._own(loader, accumulate)

    def global_params(self) -> AbstractContextManager[object]:
        """A context in which the model has the server's parameters, as they were when this worker's round began.

        For an evaluation in the loop: within a round the model has this worker's own parameters.
        """
        if self._port is None or self._attached is None:
            return nullcontext()
        return self._attached.loaded(self._port.assigned["params"])

    def _shared(self, loader: Iterable[T], accumulate: int) -> Iterator[T]:
        assert self._port is not None
        settings = self._port.settings
        leased = self._leased.get(id(loader))
        if leased is None:
            require(not self._leased, "batches takes one data loader per run with shared sampling: this is another")
            given = cast("DataLoader[Any]", loader)
            part = settings.group_rank, settings.group
            self._leased[id(loader)] = leased = LeasedLoader(given, settings.seed, accumulate, part)
        self._begin(leased.facts(self._epochs))
        self._settle()
        if self._ended():
            return
        assert self._assignment is not None
        if self._follows and self._lease is not None:
            self._epoch = max(self._epoch, self._lease.epoch)
        leased.queue.hold(self._assignment.order.leases)
        for batch, lease, stop in leased.iterate(self._epoch):
            self._current = lease._replace(stop=stop)
            self._waiting += 1
            self._delivered += 1
            try:
                yield batch
            except GeneratorExit:
                # The loop was left. What no optimizer step has used is delivered again.
                leased.queue.put_back(lease, lease.first if self._used is None else self._used.stop)
                self._batches += self._used == self._current
                self._current, self._waiting = None, 0
                raise
            self._used = self._current
            self._batches += 1
            if stop == lease.stop:
                if self._finish_round():
                    return
                leased.queue.hold(self._assignment.order.leases)

    def _own(self, loader: Iterable[T], accumulate: int) -> Iterator[T]:
        try:
            size = len(loader)  # type: ignore[arg-type]
        except TypeError:
            size = None
        self._begin(DataFacts(OWN, size, 1, accumulate, self._epochs))
        if self._ended():
            return
        for batch in loader:
            self._waiting += 1
            self._delivered += 1
            yield batch
            self._batches += 1
            assert self._assignment is not None
            if self._batches >= self._assignment.local_steps * accumulate and self._finish_round():
                return

    # Rounds

    @property
    def _lease(self) -> Lease | None:
        """What this round is to use."""
        order = None if self._assignment is None else self._assignment.order
        return order.leases[0] if order is not None and order.leases else None

    def _settle(self) -> None:
        """Report a round whose last batch has been used, where the loop was left with that batch."""
        if self._used is not None and self._used == self._lease:
            self._finish_round()

    @property
    def _attached_steps(self) -> int:
        """Optimizer steps of this round so far."""
        assert self._attached is not None
        return self._attached.steps

    def _check_attached(self, what: str) -> None:
        require(self._attached is not None, f"worker.{what} comes after worker.attach(model, optimizer)")

    def _begin(self, data: DataFacts) -> None:
        """Before the first round: say on what is trained."""
        assert self._port is not None
        if self._data is not None:
            if data != self._data:
                raise ConfigError("batches is called with another loader or accumulate than before: use the same")
            return
        self._data = data
        self._take(self._port.begin(data))

    def _stepped(self) -> None:
        """The optimizer has made a step."""
        if self._done:
            raise RunFinished("the run is at its end: look at worker.done, or iterate over worker.batches(loader)")
        self._waiting = 0
        if self._current is not None:
            self._used = self._current
        if self._data is None:  # no `batches` in this loop: a round is so many steps
            self._begin(DataFacts(OWN, None, 1, 1, self._epochs))
            if self._ended():
                return
        assert self._attached is not None
        assert self._assignment is not None
        if self._counts_steps and self._attached.steps >= self._assignment.local_steps:
            self._finish_round()

    @property
    def _counts_steps(self) -> bool:
        """Whether rounds end after optimizer steps: there are no `batches`."""
        return self._data is not None and self._data.sampling == OWN and self._data.size is None

    def _ended(self) -> bool:
        return self._done

    def _finish_round(self) -> bool:
        """Report, and begin the next round; whether there is none, because the run is at its end."""
        assert self._port is not None
        assert self._data is not None
        if self._waiting and self._data.accumulate == 1 and not self._warned and not self._counts_steps:
            self._warned = True
            warn(
                f"a round ended {self._waiting} batches after the last optimizer step: where gradients are "
                "accumulated, write worker.batches(loader, accumulate=N), or rounds are shorter than they should be"
            )
        self._take(self._port.report(self._report()))
        return self._done

    def _report(self) -> Report:
        port, attached, assignment, data = self._port, self._attached, self._assignment, self._data
        assert port is not None
        assert attached is not None
        assert assignment is not None
        assert data is not None
        steps, rate = attached.measure(port.assigned, port.reported)
        used = self._used
        samples = (0 if used is None else used.samples) if data.sampling == SHARED else self._batches
        if self._counts_steps:
            samples = steps
        return Report(
            port.settings.worker,
            assignment.index,
            samples=samples,
            round=assignment.round,
            buffers=attached.buffers(),
            finite=all(all_finite(vector) for vector in port.reported.values()),
            facts=RoundFacts(steps, self._batches, used),
            learning_rate=rate,
        )

    def _take(self, answer: Assignment | Finished) -> None:
        """Begin the next round, or end."""
        port, attached = self._port, self._attached
        assert port is not None
        assert attached is not None
        self._used, self._current, self._batches = None, None, 0
        self._rounds += 1
        first, self._assignment = self._assignment is None, None
        if isinstance(answer, Finished):
            self._done, self._chief = True, answer.chief
            buffers = port.buffers if attached.facts.buffers else None
            attached.finish(port.assigned["params"], buffers, answer.clock, answer.epoch)
            return
        self._assignment, order = answer, answer.order
        self._chief = order.chief
        # A step that was made before the first assignment counts if it began at the same parameters.
        if not (first and answer.index == self._welcome.index):
            attached.load(port.assigned, order.clock, order.epoch)
        # As a function of the round, so that a replay, or another worker in its place, draws the same numbers.
        seed_global(derive(port.settings.seed, "loop", answer.worker, answer.round))
