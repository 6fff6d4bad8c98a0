"""Runs for Theorem 1: wild laws of delay, the weights of the theorem's mean, and squared gradient norms at every w_t.

The theorem weighs |grad F(w_t)|^2 by eta-hat_{t,k} = eta_{next(t,k)}, where w_t was sent to worker k (w_0: to all
workers) and next(t,k) is the iteration of its next report. That is the report whose index is t. So the weight of w_t is
the sum of eta over the reports with index t, whenever they come. Some come after the run's end T: the schedule is made
longer until the last of them is in. These need no gradients: eta depends on delays alone. A round that a crash loses
has no report and so no weight.

The task is the built-in `nonconvex`, whose constants are known. A step draws its samples with replacement,
independently of all else, as Assumption 1 asks (a shuffled epoch would not do: its last samples depend on the others).

Server and worker rule are the library's own. Their arithmetic is element by element, so many seeds and several gammas
run side by side in one long vector: the gradient is multiplied by its gamma, and the rule's own learning rate is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from orlomo.clusters.cluster import Cluster, Fault, Speed, cluster
from orlomo.clusters.schedule import DEPARTURES, REPORT, Schedule, trace
from orlomo.methods.messages import Assignment, Report
from orlomo.methods.papers.orlomo import OrLoMo
from orlomo.methods.worker import WorkerRule
from orlomo.seeds import generator
from orlomo.tasks.theory import nonconvex


@dataclass(frozen=True, kw_only=True)
class Case:
    """One setting of the theorem; `learning_rates` by name, None: those that `theorem.usual_rates` gives."""

    workers: int = 8
    local_steps: int = 4
    iterations: int = 4_500
    momentum: float = 0.5
    batch_size: int = 1
    learning_rates: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Law:
    """A law of delays: (workers, local_steps, iterations) -> cluster."""

    name: str
    cluster: Callable[[int, int, int], Cluster]
    covered: bool = True  # whether Theorem 1 holds for it: K stays the same and no round is lost


def _one_report_near_the_end(workers: int, local_steps: int, iterations: int) -> Cluster:
    # The others report at every 1 / (K-1) of a round, so that T reports take T / (K-1) rounds.
    slow = Speed(count=1, factor=max(1.0, 0.9 * iterations / max(1, workers - 1)), law="fixed")
    return Cluster(speeds=(Speed(law="fixed"), slow))


def _away(workers: int, local_steps: int, iterations: int) -> Cluster:
    end = local_steps * iterations / max(1, workers - 1)
    last = workers - 1
    faults = (Fault(time=0.05 * end, worker=last, kind="crash"), Fault(time=0.9 * end, worker=last, kind="return"))
    return Cluster(faults=faults)


LAWS = (
    Law("constant", lambda k, s, t: Cluster(speeds=(Speed(law="fixed"),))),
    Law("any worker next (exponential)", lambda k, s, t: Cluster(speeds=(Speed(law="exponential"),))),
    Law("heavy tail (lognormal, cv 10)", lambda k, s, t: Cluster(speeds=(Speed(law="lognormal:10"),))),
    Law("one worker 50 times slower, stalls", lambda k, s, t: cluster("slow-worker:50")),
    Law("one worker reports once, near the end", _one_report_near_the_end),
    Law("one worker crashes, back near the end", _away, covered=False),
)


def settled_trace(method: OrLoMo, cluster: Cluster, workers: int, iterations: int, seed: int = 0) -> Schedule:
    """The schedule of a run, continued until every assignment made before its end is reported or lost."""
    reports = iterations + 4 * workers
    while True:
        schedule = trace(method, workers=workers, iterations=reports, cluster=cluster, seed=seed)
        if _settled(schedule, workers, iterations):
            return schedule
        reports *= 2  # a heavy tail may keep one worker busy for most of a run


def _settled(schedule: Schedule, workers: int, iterations: int) -> bool:
    rows = _rows_of_run(schedule, iterations)
    # Every worker present at the run's end holds an assignment; its next event, a report or a loss, settles it.
    present = set(range(workers))
    for kind, worker in zip(schedule["kind"][:rows].tolist(), schedule["worker"][:rows].tolist(), strict=True):
        if kind in DEPARTURES:
            present.discard(worker)
        elif kind != REPORT:
            present.add(worker)
    return present <= set(schedule["worker"][rows:].tolist())


def _rows_of_run(schedule: Schedule, iterations: int) -> int:
    """How many rows there are up to the last report of the run."""
    return int(np.searchsorted(np.cumsum(schedule.reports), iterations)) + 1


def weights(schedule: Schedule, iterations: int) -> NDArray[np.float64]:
    """The weight of each |grad F(w_t)|^2, t = 0 .. T-1: the sum of eta over the reports with index t.

    >>> weights(settled_trace(OrLoMo(), Cluster(speeds=(Speed(law="fixed"),)), workers=2, iterations=3), 3)
    array([1. , 0.5, 0.5])
    """
    wanted = schedule.reports & (schedule["index"] < iterations)
    result = np.zeros(iterations)
    # Not `result[index] += eta`: all workers report w_0, and repeated indices would count once.
    np.add.at(result, schedule["index"][wanted], schedule["eta"][wanted])
    return result


def largest_delay(schedule: Schedule, iterations: int) -> int:
    """The largest delay of the run's own reports."""
    return int(schedule["delay"][: _rows_of_run(schedule, iterations)].max())


def gradient(w: Tensor, error: Tensor | float = 0.0) -> Tensor:
    """The true gradient of the task `nonconvex`, 2 w / (1 + w^2)^2, plus the error of a stochastic one."""
    given = error if isinstance(error, Tensor) else w.new_tensor(error)
    return torch.addcdiv(given, w, (w * w).add_(1).square_(), value=2)


def task_vectors() -> tuple[Tensor, Tensor]:
    """The gradient's error for each sample of `nonconvex`, and w_0, in double precision: rounding plays no part."""
    task = nonconvex()
    assert isinstance(task.train_data, Tensor)
    return -task.train_data.double(), task.initial_params(0).double()


def checked_facts() -> dict[str, float]:
    """L, sigma (of one sample), minimum and initial value of `nonconvex`; that they are true is checked."""
    task = nonconvex()
    errors, start = task_vectors()
    model = task.build(0).module
    automatic = torch.autograd.grad(task.loss(model, task.train_data), list(model.parameters()))[0]
    assert torch.allclose(automatic.double(), gradient(start), atol=1e-6), "the errors have a mean, or F is another one"
    variance = float((errors - errors.mean(dim=0)).square().sum(dim=1).mean())
    assert variance <= task.facts["sigma"] ** 2 * (1 + 1e-6), "sigma is too small"
    # F sums one function over the coordinates, so its L is that function's. Beyond 20 the curvature is below 1e-4.
    grid = torch.linspace(-20, 20, 40_001, dtype=torch.float64)
    curvature = float((gradient(grid).diff() / grid.diff()).abs().max())
    assert 0.999 * task.facts["L"] <= curvature <= task.facts["L"] * (1 + 1e-9), "L is wrong"
    return task.facts


@torch.inference_mode()  # small vectors: bookkeeping is a good part of the time
def squared_norms(case: Case, schedule: Schedule, rates: Sequence[float], seeds: int) -> Tensor:
    """|grad F(w_t)|^2 of OrLoMo on this schedule: T x gammas x seeds."""
    errors, start = task_vectors()
    shape = (len(rates), seeds, len(start))
    method = OrLoMo(learning_rate=1.0, momentum=case.momentum, local_steps=case.local_steps)
    server = method.server(start.expand(shape).flatten(), case.workers)
    params = torch.empty_like(server.params)
    steps = _Round(method.worker(params), params.view(shape), torch.tensor(rates, dtype=params.dtype).view(-1, 1, 1))
    chosen = _samples(len(errors), (case.iterations, case.local_steps, case.batch_size), seeds)
    result = params.new_empty(case.iterations, *shape[:2])
    held = {assignment.worker: assignment for assignment in server.start()}
    rows = _rows_of_run(schedule, case.iterations)
    for kind, worker in zip(schedule["kind"][:rows].tolist(), schedule["worker"][:rows].tolist(), strict=True):
        if kind in DEPARTURES:
            del held[worker]
            assignments = server.leave(worker)
        elif kind != REPORT:
            assignments = server.join(worker)
        else:
            t = server.iteration
            # At w_t, before the report is folded in; without noise.
            result[t] = gradient(server.params).view(shape).square_().sum(dim=2)
            assignments = server.receive(steps.run(held.pop(worker), errors[chosen[t]].mean(dim=1)))
        held.update({assignment.worker: assignment for assignment in assignments})
    return result


@dataclass(frozen=True)
class _Round:
    rule: WorkerRule
    params: Tensor  # the rule's parameters, as gammas x seeds x dimensions
    rates: Tensor

    def run(self, assignment: Assignment, errors: Tensor) -> Report:
        """A round with one error per step and seed, the same for all gammas."""
        self.rule.start(assignment)
        for error in errors:
            self.rule.step(gradient(self.params, error).mul_(self.rates).view(-1))
        return self.rule.finish()


def _samples(size: int, shape: tuple[int, int, int], seeds: int) -> Tensor:
    """Which samples: iterations x steps x batch x seeds, with replacement, each seed from its own generator."""
    # int32 is part of the stream: with int64 the generator would draw other samples.
    drawn = [generator(seed, "theorem").integers(0, size, shape, dtype=np.int32) for seed in range(seeds)]
    return torch.from_numpy(np.stack(drawn, axis=-1)).long()
