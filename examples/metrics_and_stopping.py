"""Metrics of one's own, early stopping, and the best model kept.

    python examples/metrics_and_stopping.py

The data are scikit-learn's breast cancer measurements; what is measured is the area under the ROC curve.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import orlomo

Batch = tuple[Tensor, Tensor]


class AUROC:
    """No mean over batches: scores are gathered, and computed with at the end."""

    def __init__(self) -> None:
        self.scores: list[Tensor] = []
        self.labels: list[Tensor] = []

    def update(self, model: nn.Module, batch: Batch) -> None:
        inputs, labels = batch
        self.scores.append(model(inputs).flatten())
        self.labels.append(labels)

    def compute(self) -> float:
        return float(roc_auc_score(torch.cat(self.labels).numpy(), torch.cat(self.scores).numpy()))


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """One output per patient: the logit of being benign."""
    inputs, labels = batch
    return nn.functional.binary_cross_entropy_with_logits(model(inputs).flatten(), labels)


measured = load_breast_cancer()
inputs = torch.tensor(measured.data, dtype=torch.float32)
inputs = (inputs - inputs.mean(0)) / inputs.std(0)
labels = torch.tensor(measured.target, dtype=torch.float32)

task = orlomo.Task(
    model=lambda: nn.Linear(30, 1),
    loss=loss,
    train_data=(inputs[:400], labels[:400]),
    test_data=(inputs[400:], labels[400:]),
    metrics=[orlomo.Metric("auroc", AUROC, label="AUROC")],
    batch_size=8,
)

if __name__ == "__main__":
    stopping = orlomo.EarlyStopping("test_loss", patience=3)
    method = orlomo.OrLoMo(learning_rate=0.02, local_steps=5)
    run = orlomo.train(task, method, workers=4, epochs=100, callbacks=[stopping, orlomo.KeepBest("test_auroc")])
    print(f"stopped: {run.stopped}")
    assert run.best is not None
    print(f"best AUROC {run.best.metrics['test_auroc']:.4f} at epoch {run.best.metrics['epoch']:.0f}")
    print(orlomo.replay(run.folder, task=task))
