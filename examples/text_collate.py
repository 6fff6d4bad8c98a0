"""Texts of unequal length: `collate` makes a batch of a list of samples.

    python examples/text_collate.py
    orlomo train examples/text_collate.py:task --workers 8 --cluster heterogeneous

The texts are the documentation strings of Python's own modules; the model says which module a sentence comes from.
"""

from __future__ import annotations

import importlib
import inspect

import torch
from torch import Tensor, nn

import orlomo

MODULES = ("math", "os", "random", "socket")
LETTERS = 96  # printable ASCII, and one for everything else

Sample = tuple[Tensor, int]  # a text as numbers, and the module that it is from


def sentences() -> list[Sample]:
    """One sample per sentence, as a data set: anything with a length that can be indexed."""
    found = []
    for label, name in enumerate(MODULES):
        module = importlib.import_module(name)
        texts = {inspect.getdoc(part) or "" for _, part in inspect.getmembers(module, callable)}
        lines = {line.strip() for text in texts for line in text.splitlines() if len(line.strip()) > 20}
        found += [
            (torch.tensor([max(1, min(ord(letter) - 31, 95)) for letter in line]), label) for line in sorted(lines)
        ]
    return found


def collate(samples: list[Sample]) -> tuple[Tensor, Tensor]:
    """The texts of a batch, filled up with zeros to the longest one, and their labels."""
    texts, labels = zip(*samples, strict=True)
    return nn.utils.rnn.pad_sequence(list(texts), batch_first=True), torch.tensor(labels)


class Reader(nn.Module):
    """A convolution over letters, and the largest value of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, 16, padding_idx=0)
        self.words = nn.Conv1d(16, 64, kernel_size=5, padding=2)
        self.module = nn.Linear(64, len(MODULES))

    def forward(self, texts: Tensor) -> Tensor:
        return self.module(self.words(self.letters(texts).transpose(1, 2)).relu().amax(2))


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross entropy."""
    texts, modules = batch
    return nn.functional.cross_entropy(model(texts), modules)


everything = sentences()
task = orlomo.Task(
    model=Reader,
    loss=loss,
    train_data=[one for n, one in enumerate(everything) if n % 5],
    test_data=everything[::5],
    collate=collate,
    batch_size=16,
)

if __name__ == "__main__":
    method = orlomo.OrLoMo(learning_rate=0.02, local_steps=4)
    run = orlomo.train(task, method, workers=8, cluster="heterogeneous", epochs=20)
    print(f"{len(everything)} sentences, accuracy {run.metric_columns['test_accuracy'][-1]:.1%}")
    print(orlomo.replay(run.folder, task=task))
