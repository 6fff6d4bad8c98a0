"""The Trainer of Hugging Face transformers as a worker of a run: `OrlomoTrainer` in place of `Trainer`."""

import sys
from contextlib import nullcontext
from typing import Any

from transformers import Trainer, TrainerCallback

import orlomo
from orlomo.errors import require
from orlomo.integrations.stream import Stream, leads


class OrlomoTrainer(Trainer):  # type: ignore[misc]
    """A Trainer that is a worker where its script is started with `orlomo run`; alone it is just a Trainer.

    The workers share the samples, `num_train_epochs` or `max_steps` is the length of the whole run, and the scheduler
    follows it; `logging_steps` and `save_steps` count the steps of one worker. Only the chief saves and logs. What
    `eval_strategy` asks for is done by the run, in a process of its own. In the end the model has the run's parameters.

    >>> class Own(OrlomoTrainer):
    ...     sampling = "own"  # as in `Worker.batches`: each worker has its own data set
    """

    sampling = "shared"
    _stream: Stream | None = None

    def __init__(self, *args: Any, **kwargs: Any):
        self.worker = orlomo.worker()
        super().__init__(*args, **kwargs)
        if not self.worker.alone:
            best = self.args.load_best_model_at_end
            require(not best, "load_best_model_at_end is for training alone: the run keeps its best parameters itself")
            self.callback_handler.callbacks.insert(1, _Rounds(self))  # after the one that sets flags, before others

    def get_train_dataloader(self) -> Any:
        loader = super().get_train_dataloader()
        if self.worker.alone:
            return loader
        self._stream = Stream(self.worker, loader, self.args.gradient_accumulation_steps, self.sampling)
        return self._stream

    def set_initial_training_values(self, *args: Any, **kwargs: Any) -> Any:
        values = super().set_initial_training_values(*args, **kwargs)
        if self._stream is None:
            return values
        self._stream.epochs = values[-1] / values[1] if self.args.max_steps > 0 else self.args.num_train_epochs
        return (sys.maxsize, *values[1:])  # epochs: until the run is at its end

    def get_batch_samples(self, epoch_iterator: Any, *args: Any, **kwargs: Any) -> Any:
        grouped = epoch_iterator if self._stream is None else self._stream.group(epoch_iterator)
        found = super().get_batch_samples(grouped, *args, **kwargs)
        self._fetched = len(found[0])  # for one optimizer step
        return found

    def is_local_process_zero(self) -> bool:
        return super().is_local_process_zero() and leads(self.worker)

    def is_world_process_zero(self) -> bool:
        return super().is_world_process_zero() and leads(self.worker)

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        if leads(self.worker):
            with self.worker.global_params() if self.is_in_train else nullcontext():
                super().save_model(*args, **kwargs)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        if leads(self.worker):
            super()._save_checkpoint(*args, **kwargs)


class _Rounds(TrainerCallback):  # type: ignore[misc]
    def __init__(self, trainer: Any):
        self.trainer, self.worker = trainer, trainer.worker

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        require(state.global_step == 0, "continue a run with `orlomo resume`, not from a checkpoint of the Trainer")
        trainer, evaluate = self.trainer, None if args.eval_strategy == "no" else self._evaluate
        self.worker.attach(trainer.model, trainer.optimizer, scheduler=trainer.lr_scheduler, evaluate=evaluate)

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        trainer = self.trainer
        trainer._fetched -= 1
        if trainer._fetched == 0:  # the round has no more batches to accumulate: step, and count them from zero
            trainer.accelerator.gradient_state._set_sync_gradients(True)
            if args.max_grad_norm > 0:
                trainer.accelerator.clip_grad_norm_(trainer.model.parameters(), args.max_grad_norm)
            trainer.optimizer.step()
            trainer.model.zero_grad()
            state.global_step += 1
            control.should_epoch_stop = True

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        state.epoch = self.trainer._stream.position
        if state.global_step >= state.max_steps:  # of this worker alone: the run is at its end when all are
            control.should_training_stop = control.should_save = False
        self._only_chief(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer._stream.close()
        if self.worker.done:
            control.should_training_stop, control.should_save = True, args.save_strategy != "no"
        self._only_chief(control)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.worker.close()

    def _only_chief(self, control: Any) -> None:
        control.should_evaluate = False
        control.should_log, control.should_save = (
            self.worker.chief and flag for flag in (control.should_log, control.should_save)
        )

    def _evaluate(self) -> dict[str, float]:
        ignored = ("epoch", "_runtime", "_per_second", "_time")
        return {name: value for name, value in self.trainer.evaluate().items() if not name.endswith(ignored)}
