"""Evaluation with the function that a user's loop gives: the program once more, in a process that does nothing else."""

from __future__ import annotations

from typing import Self

from torch import Tensor

from orlomo.engines.loops.facts import differs
from orlomo.engines.loops.port import Come, Hello, Memory
from orlomo.engines.loops.process import serve_loop
from orlomo.engines.processes.evaluator import EvaluationFailed, EvaluationProcess
from orlomo.engines.processes.starter import Failed, Starter
from orlomo.engines.slots import Shape
from orlomo.loop.buffers import encoding
from orlomo.loop.messages import LoopSettings, ModelFacts, Welcome
from orlomo.loop.program import Program
from orlomo.tasks.evaluation import Evaluation


class LoopEvaluator(EvaluationProcess):
    """Evaluates parameters one after another. Started when it is first needed; use as a context manager."""

    def __init__(self, starter: Starter, program: Program, settings: LoopSettings, model: ModelFacts):
        self._program, self._settings, self._model = program, settings, model
        shape = Shape(model.parameters, model.dtype, encoding(model.buffers).bytes, False, ("params",))
        self._memory = Memory()
        self._columns: set[str] | None = None
        self._attached = False
        self._prepare(starter, self._memory.slot(shape, create=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        self._memory.close()

    def _start(self) -> None:
        self._attached = False
        self._process, self._pipe = self._starter.start(
            serve_loop, self._program, self._settings, self._memory, daemon=False
        )

    def _send(self) -> None:
        if self._pipe is None:
            self._start()
        if self._attached:  # else it is sent when the program has come to `attach`
            super()._send()

    def _answer(self, message: object) -> Evaluation | None:
        assert self._pipe is not None
        if isinstance(message, Hello):
            if (difference := differs(message.model, self._model)) is not None:
                raise EvaluationFailed(f"the evaluation's model is not that of the workers: {difference}")
            self._pipe.send(Come(self._slot.shape, False, Welcome(0, 0, 0, False)))
            self._attached = True
            if self._queue:
                super()._send()
            return None
        if isinstance(message, Failed):
            raise EvaluationFailed(f"evaluation failed: {message.error}", message.traceback)
        assert isinstance(message, dict)
        if self._columns is None:
            self._columns = set(message)
        if set(message) != self._columns:
            before = sorted(self._columns)
            raise EvaluationFailed(f"evaluate returned {sorted(message)}, but {before} before: it must be the same")
        return Evaluation(message)


class NoEvaluator:
    """Where the loop has no function that evaluates."""

    def evaluate(self, params: Tensor, buffers: Tensor | None) -> int:
        """Never called."""
        raise AssertionError

    def evaluation(self, ticket: int, wait: bool) -> Evaluation | None:
        """Never called."""
        raise AssertionError
