"""One round, as a pure function: assignment in, report out. Every engine computes rounds with this.

What comes out depends on the assignment and on (seed, worker, round), on nothing else.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from orlomo.engines.compiling import prepare
from orlomo.methods.messages import Assignment, Report
from orlomo.methods.method import Method
from orlomo.seeds import derive, isolated, seed_global, seed_torch
from orlomo.tasks.evaluation import Evaluation, evaluate, read_buffers, reset_statistics
from orlomo.tasks.task import Task, as_tensors, fetch


class RoundRunner:
    """A model to compute rounds and evaluations on, one at a time."""

    def __init__(self, task: Task, method: Method, seed: int, device: torch.device | str = "cpu"):
        self.task = task
        self.seed = seed
        self.flat = task.build(seed, device)
        if task.compile:
            prepare()
            self.flat.compile()
        self.rule = method.worker(self.flat.params)
        self._seeds_data = as_tensors(task.train_data) is None

    def run(self, assignment: Assignment) -> Report:
        """The S local steps of one round."""
        task, flat, worker, n = self.task, self.flat, assignment.worker, assignment.round
        flat.reset_buffers()
        if task.buffers == "average":
            reset_statistics(flat)
        flat.module.train()
        self.rule.start(assignment)
        total = torch.zeros((), device=flat.params.device)
        samples = 0
        with isolated():
            for step, chosen in enumerate(task.round_batches(self.seed, worker, n, assignment.local_steps)):
                source = derive(self.seed, "step", worker, n, step)
                if self._seeds_data:
                    seed_global(source)  # a user's data set may draw from any global generator
                else:
                    seed_torch(source)  # dropout
                batch = fetch(task.train_data, chosen, flat.params.device)
                if task.augment is not None:
                    batch = task.augment(batch, torch.Generator().manual_seed(source))
                loss = task.loss_of(flat.module, batch)
                self.rule.step(flat.backward(loss))
                total += loss.detach()
                samples += len(chosen)
        report = self.rule.finish(samples, float(total) / assignment.local_steps)
        if task.buffers == "average":
            report = dataclasses.replace(report, buffers=read_buffers(flat).clone())
        return report

    def evaluate(self, params: Tensor, buffers: Tensor | None = None) -> Evaluation:
        """Losses and accuracy at these parameters."""
        return evaluate(self.task, self.flat, params, self.seed, buffers)
