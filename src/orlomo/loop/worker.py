"""The user's own training loop as a worker: `orlomo.worker()`, attached to a model and its optimizer.

A round begins when the server's parameters are loaded, and ends between two batches, or, where no `batches` are used,
after an optimizer step. In a script started on its own, a worker does nothing and the loop runs as usual.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self, TypeVar, cast

from torch import nn
from torch.utils.data import DataLoader

from orlomo.errors import OrlomoError, require
from orlomo.loop.attached import Attached
from orlomo.loop.data import LeasedIds, LeasedLoader
from orlomo.loop.messages import OWN, SHARED, EvaluationPort, Port
from orlomo.loop.rounds import Rounds, RunFinished
from orlomo.printing import say

T = TypeVar("T")

SERVER = "ORLOMO_SERVER"
"""Set in the processes of a run's workers, and so in those that they start."""

Evaluate = Callable[[], "float | Mapping[str, float]"]


_worker: Worker | None = None
"""That of this process."""


def connect(port: Port) -> None:
    """Make this process the worker at the other end of a port."""
    global _worker
    _worker = Worker(port)


def worker() -> Worker:
    """This process as a worker of a run. In a script that was started on its own, a worker that does nothing.

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
                f"{SERVER} is set, but this process is not a worker of that run and cannot reach its server: start the "
                f"script with `orlomo run`, or take {SERVER} away to train alone"
            )
        _worker = Worker(None)
        say(
            "orlomo: this script was started on its own and trains as usual; `orlomo run` trains it on several workers",
            sys.stderr,
        )
    return _worker


class Worker:
    """One worker of a run, in the process of the user's loop. Created by `orlomo.worker()`.

    >>> import orlomo
    >>> worker = orlomo.worker()  # in a script started on its own
    >>> list(worker.epochs(2)), worker.chief
    ([0, 1], True)
    """

    def __init__(self, port: Port | None):
        self._port = port
        self._rounds: Rounds | None = None
        self._leased: dict[object, LeasedLoader | LeasedIds] = {}  # by the user's data loader, or number of blocks
        self._count: float | None = None  # of epochs, as the loop says

    @property
    def alone(self) -> bool:
        """Whether the script was started on its own, without a server."""
        return self._port is None

    @property
    def done(self) -> bool:
        """Whether the run is over and the model holds its final parameters. False in a script started on its own."""
        return self._rounds is not None and self._rounds.done

    @property
    def chief(self) -> bool:
        """Whether this worker should save and print: the one in the lowest rank that takes part.

        In a group of processes, its rank 0. In a script started on its own, True; with torchrun, True on rank 0.
        """
        if self._port is None:
            return os.environ.get("RANK", "0") == "0"  # as torchrun sets it
        return self._rounds is not None and self._rounds.chief

    @property
    def last_of_round(self) -> bool:
        """Whether this batch is the last one of its round: when accumulating gradients, step here too.

        Always False in a script started on its own.
        """
        return self._rounds is not None and self._rounds.at_last_batch

    @property
    def attached(self) -> bool:
        """Whether `attach` has been called. Always False in a script started on its own."""
        return self._rounds is not None

    @property
    def id(self) -> int:
        """The number of this worker in the run's record; 0 in a script started on its own."""
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

        It can be used as a context manager; without `with`, the end of the script or `close()` ends the worker's part.

        Args:
            model: a module, or a list of them.
            optimizer: an optimizer, or a list of them. It sets the learning rate and keeps its state between rounds.
            scheduler: a scheduler, or a list of them. It follows the progress of the run; the script's own calls of
                `step` do nothing. `unit`: whether it counts every "step" (of all workers together) or every "epoch".
            state: "keep" the optimizer's state between rounds, or "reset" it at the start of each.
            evaluate: called without arguments, in a separate process, with the server's parameters in the model;
                returns a number, or a dict of numbers.
        """
        require(self._rounds is None, "this worker is attached already: give all models and optimizers in one call")
        require(unit in ("step", "epoch"), f'unit must be "step" or "epoch", not {unit!r}')
        require(state in ("keep", "reset"), f'state must be "keep" or "reset", not {state!r}')
        require(evaluate is None or callable(evaluate), f"evaluate must be a function, not {evaluate!r}")
        port = self._port
        if port is None:
            return self
        settings = port.settings
        attached = Attached(model, optimizer, settings.method, scheduler=scheduler, unit=unit, state=state)
        self._rounds = Rounds(port, attached, evaluates=evaluate is not None)
        if settings.evaluates:
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
        """End this worker's part. Before the end of the run, it reports what it has done of its round, and leaves."""
        if self._rounds is not None:
            self._rounds.close()

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs of the run, `count` in total; a worker that joins late starts at the current epoch.

        They end when the run does. A worker may miss an epoch whose samples the others have used. If the loop leaves an
        epoch early, the epoch continues, because its samples are still to be used.
        """
        require(isinstance(count, int) and count >= 1, f"epochs takes a whole number of at least 1, not {count!r}")
        if self._port is None:
            return iter(range(count))
        self._count = count
        return self._begun("epochs").epochs()

    def batches(
        self, loader: Iterable[T], *, accumulate: int = 1, sampling: str = SHARED, epochs: float | None = None
    ) -> Iterable[T]:
        """The batches of this worker, from the user's data loader.

        Args:
            accumulate: batches per optimizer step, if gradients are accumulated.
            sampling: "shared": all workers share the samples, and each sample is used once per epoch, even if workers
                fail. "own": each worker uses whatever the loader yields.
            epochs: the length of the run, for a loop that does not iterate over `worker.epochs`.
        """
        require(isinstance(accumulate, int) and accumulate >= 1, f"accumulate must be at least 1, not {accumulate!r}")
        require(sampling in (SHARED, OWN), f'sampling must be "shared" or "own", not {sampling!r}')
        if self._port is None:
            return loader
        rounds, settings = self._begun("batches"), self._port.settings
        self._count = self._count if epochs is None else epochs
        if sampling == OWN:
            return rounds.own(loader, accumulate, self._count)
        key = id(loader), accumulate
        if key not in self._leased:
            given, part = cast("DataLoader[Any]", loader), (settings.group_rank, settings.group)
            self._lease(key, LeasedLoader(given, settings.seed, accumulate, part))
        return rounds.shared(self._leased[key], self._count)

    def blocks(self, count: int, *, shuffle: bool = True) -> Iterable[int]:
        """The numbers 0 to `count` - 1, of files or row ranges, each exactly once per epoch over all workers.

        For data that cannot be indexed, such as an IterableDataset. Everything the loop does with one number is a
        round.
        """
        require(isinstance(count, int) and count >= 1, f"blocks takes a whole number of at least 1, not {count!r}")
        if self._port is None:
            return range(count)
        rounds = self._begun("blocks")
        key = count, shuffle
        if key not in self._leased:
            self._lease(key, LeasedIds(count, self._port.settings.seed, shuffle))
        return rounds.shared(self._leased[key], self._count)

    def global_params(self) -> AbstractContextManager[object]:
        """A context in which the model has the server's parameters, as they were when this worker's round began.

        For evaluations in the loop: outside of this context the model has this worker's own parameters.
        """
        if self._port is None or self._rounds is None:
            return nullcontext()
        return self._rounds.attached.loaded(self._port.assigned["params"])

    def _begun(self, what: str) -> Rounds:
        require(self._rounds is not None, f"worker.{what} comes after worker.attach(model, optimizer)")
        assert self._rounds is not None
        return self._rounds

    def _lease(self, key: object, leased: LeasedLoader | LeasedIds) -> None:
        require(
            not self._leased,
            "with shared sampling a run has one data loader, one number of batches per step: this is a different one; "
            'use the same, or sampling="own"',
        )
        self._leased[key] = leased
