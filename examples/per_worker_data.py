"""Two hospitals, each with patients of its own: a worker in each, and no patient's data leave it.

    python examples/per_worker_data.py
    orlomo train examples/per_worker_data.py:task --method orlomo --workers 2 --cluster heterogeneous:3

The data are scikit-learn's breast cancer measurements. The larger hospital has two thirds of them.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import orlomo
from orlomo.tasks.task import classification_loss

measured = load_breast_cancer()
inputs = torch.tensor(measured.data, dtype=torch.float32)
inputs = (inputs - inputs.mean(0)) / inputs.std(0)
labels = torch.tensor(measured.target)
order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
north, south, tested = order[:300], order[300:450], order[450:]

task = orlomo.Task(
    model=lambda: nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 2)),
    loss=classification_loss,
    train_data=orlomo.PerWorker({"north": (inputs[north], labels[north]), "south": (inputs[south], labels[south])}),
    test_data=(inputs[tested], labels[tested]),
    batch_size=10,
)

if __name__ == "__main__":
    method = orlomo.OrLoMo(learning_rate=0.02, local_steps=5)
    # The worker in the south takes three times as long; nobody waits for it.
    cluster = orlomo.Cluster(speeds=(orlomo.Speed(count=1), orlomo.Speed(count=1, factor=3.0)))
    run = orlomo.train(task, method, workers=2, cluster=cluster, epochs=20)
    for row in run.worker_data:
        reports = int((run.event_columns["worker"] == row["worker"]).sum())
        epochs = reports * method.local_steps * row["batch_size"] / row["samples"]
        print(f"worker {row['worker']}: {row['data']}, {row['samples']} patients, {epochs:.1f} epochs of them")
    print(f"accuracy {run.metric_columns['test_accuracy'][-1]:.1%}")
    print(orlomo.replay(run.folder, task=task))
