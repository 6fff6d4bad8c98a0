"""The Trainer of Lightning as a worker of a run: `Trainer(callbacks=[OrlomoCallback()])`."""

from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelSummary, ProgressBar
from lightning.pytorch.plugins.io import CheckpointIO
from lightning.pytorch.utilities import rank_zero_only

import orlomo
from orlomo.errors import require
from orlomo.integrations.stream import Stream, leads
from orlomo.loop.messages import SHARED


class OrlomoCallback(Callback):  # type: ignore[misc]
    """Makes `Trainer.fit` a worker where the script is started with `orlomo run`; alone it does nothing.

    The workers share the samples, `max_epochs` or `max_steps` is the length of the whole run, and the schedulers
    follow it. Only the chief saves and logs. Validation is done by the run, in a process of its own. In the end the
    model has the run's parameters.

    Args:
        accumulate: batches per optimizer step, where a module with manual optimization accumulates gradients.
        unit: what its schedulers count, "step" or "epoch", where a module with manual optimization has some.
        sampling: as in `Worker.batches`.
        state: of the optimizers, as in `Worker.attach`.

    >>> from lightning.pytorch import Trainer
    >>> trainer = Trainer(callbacks=[OrlomoCallback()], logger=False, accelerator="cpu")
    """

    def __init__(self, accumulate: int = 0, unit: str = "", sampling: str = SHARED, state: str = "keep"):
        self.worker = orlomo.worker()
        self._accumulate, self._unit, self._sampling, self._state = accumulate, unit, sampling, state
        if not leads(self.worker):
            rank_zero_only.rank = 1  # loggers write nothing

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if not leads(self.worker):
            trainer.callbacks = [c for c in trainer.callbacks if not isinstance(c, (ModelSummary, ProgressBar))]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self.worker.alone:
            return
        fit = trainer.fit_loop
        require(trainer.global_step == 0, "continue a run with `orlomo resume`, not from a checkpoint of Lightning")
        require(len(fit._combined_loader.flattened) == 1, "a run has one train_dataloader: combine the data sets")
        (loader,) = fit._combined_loader.flattened
        everything = not trainer.reload_dataloaders_every_n_epochs and trainer.num_training_batches == len(loader)
        require(everything, "a run uses all batches of one train_dataloader: for a part of the data use a Subset")
        accumulate = self._accumulate or trainer.accumulate_grad_batches
        limits = (fit.max_epochs, fit.max_steps * accumulate / len(loader))
        epochs = min((limit for limit in limits if limit is not None and limit > 0), default=None)
        self._stream = Stream(self.worker, loader, accumulate, self._sampling, epochs)
        self._attach(trainer, pl_module)
        fit._combined_loader.flattened = [self._stream]
        fit.min_epochs, fit.epoch_loop.min_steps, fit.epoch_loop.max_steps = None, None, -1
        trainer.limit_val_batches = 0
        trainer.strategy.checkpoint_io = _ChiefsIO(trainer.strategy.checkpoint_io, self.worker)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if not self.worker.alone:
            current = trainer.fit_loop.epoch_progress.current
            current.processed = current.completed = self._stream.epoch
            iter(trainer.fit_loop._data_fetcher)  # a new pass

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self.worker.last_of_round and (batch_idx + 1) % trainer.accumulate_grad_batches:
            # The round has no more batches to accumulate. At the last batch of an epoch Lightning makes a step.
            trainer.fit_loop.epoch_loop.batch_progress.is_last_batch = True

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if not self.worker.alone:
            self._stream.close()
            trainer.should_stop |= self.worker.done
            if not self.worker.done:  # never enough epochs, before the run is at its end
                trainer.fit_loop.epoch_progress.current.processed = 0

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.worker.close()

    def _attach(self, trainer: Any, pl_module: Any) -> None:
        configs = trainer.lr_scheduler_configs
        automatic = pl_module.automatic_optimization
        require(
            automatic or bool(self._unit) or not configs, 'say what the schedulers count: OrlomoCallback(unit="step")'
        )
        units = {config.interval for config in configs if automatic} or {self._unit or "step"}
        same = len(units) == 1 and all(config.frequency == 1 for config in configs)
        require(same, "the schedulers of a run all have the same interval, and frequency 1")

        def validate() -> dict[str, float]:
            trainer.validating, trainer.callbacks = True, []
            trainer.fit_loop.epoch_loop.val_loop.run()
            return {name: float(value) for name, value in trainer.callback_metrics.items()}

        self.worker.attach(
            pl_module,
            trainer.optimizers,
            scheduler=[config.scheduler for config in configs],
            unit=units.pop(),
            state=self._state,
            evaluate=validate if trainer.enable_validation else None,
        )


class _ChiefsIO(CheckpointIO):  # type: ignore[misc]
    def __init__(self, inner: Any, worker: Any):
        self.inner, self.worker = inner, worker

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner.load_checkpoint(*args, **kwargs)

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        if self.worker.chief:
            with self.worker.global_params():
                self.inner.save_checkpoint(*args, **kwargs)

    def remove_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        if self.worker.chief:
            self.inner.remove_checkpoint(*args, **kwargs)
