"""One round, as a pure function: assignment and worker state in, report and worker state out.

Every engine computes rounds with this. What comes out depends on the assignment, the state and (seed, worker, round),
and on nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from orlomo.engines.compiling import prepare
from orlomo.engines.optimizer import OptimizerSteps
from orlomo.errors import ConfigError
from orlomo.methods.messages import Assignment, Report, WorkerState
from orlomo.methods.method import Method
from orlomo.methods.state import plain_numbers
from orlomo.seeds import derive, isolated, seed_global
from orlomo.tasks.buffers import Buffers
from orlomo.tasks.data import fetch
from orlomo.tasks.evaluation import Evaluation, evaluate
from orlomo.tasks.shares import Shares
from orlomo.tasks.task import Task


class Computed(NamedTuple):
    """A round's outcome: the report, and what the worker keeps for its next round."""

    report: Report
    state: WorkerState


class RoundRunner:
    """A model to compute rounds and evaluations on, one at a time."""

    def __init__(self, task: Task, method: Method, seed: int, device: torch.device | str = "cpu"):
        self.task = task
        self.method = method
        self.seed = seed
        self.flat = task.build(seed, device)
        self.buffers = Buffers(self.flat, task.buffers)
        if task.compile:
            prepare()
            self.flat.compile()
        own = task.optimizer is not None
        self.rule = OptimizerSteps(self.flat, task, method) if own else method.worker(self.flat.params)
        self._groups = task.group_vectors(self.flat, method.weight_decay)
        if self._groups is not None and not self.rule.uses_groups:
            raise ConfigError(
                f"{method.name} does not know the task's groups and decay_biases: its worker rule "
                f"{type(self.rule).__name__} must use self.groups in `step`, and declare uses_groups = True"
            )
        self._shares = Shares(task, seed)

    def new_state(self) -> WorkerState:
        """What a worker keeps before its first round."""
        return self.method.worker_state(self.flat.params)

    def run(
        self,
        assignment: Assignment,
        state: WorkerState | None = None,
        destination: Mapping[str, Tensor] | None = None,
    ) -> Computed:
        """The local steps of one round.

        `state` is changed and given back; None: that of a new worker. `destination`: memory for the report's vectors,
        which are there afterwards whether or not the worker rule has used it.
        """
        flat, rule = self.flat, self.rule
        state = self.new_state() if state is None else state
        memory = dict(state.vectors)  # the rule may replace entries of state.vectors by tensors of its own
        self.buffers.begin_round(state.buffers)
        flat.module.train()
        rule.state, rule.destination, rule.groups = state, destination or {}, self._groups
        versions = {name: vector._version for name, vector in assignment.vectors.items()}
        rule.start(assignment)
        samples, loss = self._steps(assignment)
        flat.check_views()
        made = rule.finish(samples, loss)
        vectors = self._declared(made.vectors, self.method.report_vectors, "report_vectors")
        buffers = self.buffers.read()
        kept = self._kept(rule.state, memory, buffers)
        if rule.destination:
            put_in(rule.destination, vectors)
            vectors = dict(rule.destination)
        if versions != {name: vector._version for name, vector in assignment.vectors.items()}:
            # Other workers may share them, and a refused round would begin elsewhere.
            raise ConfigError(
                f"{self.method.name}: the worker rule changes the assignment's vectors in place: copy them"
            )
        # What identifies the round is the engine's to say: a user's rule cannot get it wrong.
        report = Report(
            assignment.worker,
            assignment.index,
            samples=samples,
            loss=loss,
            round=assignment.round,
            buffers=buffers,
            vectors=vectors,
            learning_rate=made.learning_rate,
        )
        return Computed(report, kept)

    def _steps(self, assignment: Assignment) -> tuple[int, float]:
        """All local steps; the number of samples, and the mean loss."""
        task, flat, worker, n = self.task, self.flat, assignment.worker, assignment.round
        data = self._shares.of(worker)
        # Summed on the device: reading each loss would wait for the GPU in every step.
        total = torch.zeros((), device=flat.params.device)
        samples = 0
        batches = task.round_batches(self.seed, worker, n, assignment.local_steps, assignment.position)
        # Seeded per step, not per round: step 3 draws the same numbers whatever steps 0 to 2 have drawn.
        with isolated():
            for step, chosen in enumerate(batches):
                flat.load()
                flat.clear_gradients()
                for first, part in task.parts(chosen):
                    source = derive(self.seed, "step", worker, n, step, *([first] if first else []))
                    seed_global(source)  # a data set, a loss or an augmentation may draw from any of them
                    batch = fetch(data, part, flat.params.device, task.collate)
                    if task.augment is not None:
                        batch = task.augment(batch, torch.Generator().manual_seed(source))
                    loss = task.loss_of(flat.module, batch)
                    if len(part) < len(chosen):
                        loss = loss * (len(part) / len(chosen))  # the loss is a mean: its share in that of the batch
                    flat.add_gradients(loss)
                    total += loss.detach()
                if step == 0:
                    flat.check_copies()
                self.rule.step(flat.gathered_gradients())
                samples += len(chosen)
        return samples, float(total) / assignment.local_steps

    def _kept(self, state: WorkerState, memory: dict[str, Tensor], buffers: Tensor | None) -> WorkerState:
        """What the rule keeps, in the memory that it was given: vectors of its own may change in the next round."""
        put_in(memory, self._declared(state.vectors, self.method.worker_vectors, "worker_vectors"))
        numbers = plain_numbers(self.method.name, state.numbers, self.method.worker_numbers)
        return WorkerState(memory, numbers, buffers if self.buffers.encoding.keeps else None, state.optimizer)

    def _declared(self, found: Mapping[str, Tensor], names: tuple[str, ...], where: str) -> dict[str, Tensor]:
        """The vectors in the declared order; an error where they are not those declared, of the model's size."""
        method, wanted = self.method.name, self.flat.params
        if set(found) != set(names):
            raise ConfigError(f"{method}: the worker rule has {sorted(found)}, but {where} declares {list(names)}")
        for name, vector in found.items():
            if vector.shape != wanted.shape or vector.dtype != wanted.dtype:
                raise ConfigError(
                    f"{method}: {name} of the worker rule is {tuple(vector.shape)} {vector.dtype}, but the model's "
                    f"parameters are {tuple(wanted.shape)} {wanted.dtype}"
                )
        return {name: found[name] for name in names}

    def evaluate(self, params: Tensor, buffers: Tensor | None = None) -> Evaluation:
        """Losses and accuracy at these parameters."""
        return evaluate(self.task, self.flat, params, self.seed, buffers)


def put_in(memory: Mapping[str, Tensor], vectors: Mapping[str, Tensor]) -> None:
    """Copy vectors into memory that may hold some of them already, also under each other's names."""
    foreign = {name: v for name, v in vectors.items() if v.data_ptr() != memory[name].data_ptr()}
    taken = {target.data_ptr() for target in memory.values()}
    for name, vector in {n: v.clone() if v.data_ptr() in taken else v for n, v in foreign.items()}.items():
        memory[name].copy_(vector)


class KeptState:
    """A worker's state in the worker itself. A round that the server refuses is computed again from the same state."""

    def __init__(self, first: WorkerState):
        self._accepted, self._next = first, first.copy()
        self._round: int | None = None

    def begin(self, round: int) -> WorkerState:
        """The state to compute this round with, in memory that the round may change."""
        if self._round is not None and round != self._round:  # another round: the last one was folded in
            self._accepted, self._next = self._next, self._accepted
        self._round = round
        self._next.copy_from(self._accepted)
        return self._next

    def finish(self, state: WorkerState) -> None:
        """What the round has left, in the memory that `begin` gave."""
        self._next = state
