"""One small regression with Lightning, automatic and manual, and with accelerate; each also without orlomo.

A script, which test_frameworks.py runs: `frameworks.py KIND`. Writes what the workers end with.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import orlomo

EPOCHS, SAMPLES, BATCH, ACCUMULATE = 3, 203, 8, 3
STEPS = EPOCHS * 9  # 26 batches are 9 steps

torch.manual_seed(0)
X = torch.randn(SAMPLES, 4)
DATA = TensorDataset(X, X @ torch.randn(4, 1))


def loader() -> DataLoader[Any]:
    return DataLoader(DATA, batch_size=BATCH, shuffle=True)


def lightning(automatic: bool, without: bool) -> tuple[nn.Module, list[float]]:
    from lightning.pytorch import LightningModule, Trainer

    from orlomo.integrations.lightning import OrlomoCallback

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 1)
            self.automatic_optimization = automatic

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor | None:
            loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
            if automatic:
                return loss
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            self.lr_schedulers().step()
            return None

        def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
            self.log("val_loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
            steps = self.trainer.estimated_stepping_batches if automatic else EPOCHS * 26
            scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    trainer = Trainer(
        max_epochs=EPOCHS,
        accumulate_grad_batches=ACCUMULATE if automatic else 1,
        callbacks=[] if without else [OrlomoCallback(unit="" if automatic else "step")],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=not without,
        enable_progress_bar=False,
        default_root_dir="lightning",
    )
    module = Module()
    trainer.fit(module, loader(), DataLoader(DATA, batch_size=64) if automatic else None)
    return module.net, [group["lr"] for group in trainer.optimizers[0].param_groups]


def accelerate(scaled: bool, without: bool) -> tuple[nn.Module, list[float]]:
    from accelerate import Accelerator

    from orlomo.integrations.accelerate import batches

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    if scaled:  # accelerate makes one itself on a GPU only; the first steps overflow
        accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    model, optimizer, data, scheduler = accelerator.prepare(model, optimizer, loader(), scheduler)
    worker = orlomo.worker()
    if not without:
        worker.attach(model, optimizer, scheduler=scheduler)
    made = 0
    for _ in range(EPOCHS) if without else worker.epochs(EPOCHS):
        for x, y in data if without else batches(worker, accelerator, data):
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.mse_loss(model(x), y))
                optimizer.step()
                made += accelerator.sync_gradients and not optimizer.step_was_skipped
                scheduler.step()
                optimizer.zero_grad()
    with Path("made").open("a") as file:
        file.write(f"{made}\n")
    return model, [group["lr"] for group in optimizer.param_groups]


KINDS = {
    "automatic": lambda without: lightning(True, without),
    "manual": lambda without: lightning(False, without),
    "accelerate": lambda without: accelerate(False, without),
    "scaled": lambda without: accelerate(True, without),
}


def train(kind: str, without: bool = False) -> tuple[list[float], list[float]]:
    torch.manual_seed(0)
    model, rates = KINDS[kind](without)
    return [value for p in model.parameters() for value in p.flatten().tolist()], rates


if __name__ == "__main__":
    values, rates = train(sys.argv[1])
    with Path("ended").open("a") as file:
        file.write(f"{values} {rates}\n")
