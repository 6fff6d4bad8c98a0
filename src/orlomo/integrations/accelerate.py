"""A loop with Hugging Face accelerate as a worker of a run: attach what is prepared, and take `batches` from here."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from accelerate import Accelerator

from orlomo.errors import require
from orlomo.loop.messages import SHARED
from orlomo.loop.worker import Worker

T = TypeVar("T")


def batches(
    worker: Worker,
    accelerator: Accelerator,
    loader: Iterable[T],
    *,
    sampling: str = SHARED,
    epochs: float | None = None,
) -> Iterable[T]:
    """The batches of this worker, as `worker.batches(loader)`, for a loop with `accelerator.accumulate`.

    Gradients are accumulated over as many batches as the accelerator says, but not beyond the end of a round. `loader`
    is one that `accelerator.prepare` gave. In a script started on its own, this is `loader`.

    >>> import torch, orlomo
    >>> from accelerate import Accelerator
    >>> accelerator, worker = Accelerator(cpu=True, gradient_accumulation_steps=2), orlomo.worker()
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    >>> loader = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4)
    >>> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    >>> with worker.attach(model, optimizer):
    ...     for epoch in worker.epochs(2):
    ...         for x in batches(worker, accelerator, loader):
    ...             with accelerator.accumulate(model):
    ...                 accelerator.backward(model(x).square().mean())
    ...                 optimizer.step()
    ...                 optimizer.zero_grad()
    """
    if worker.alone:
        return loader
    require(hasattr(loader, "end_of_dataloader"), "the loader is not prepared: call accelerator.prepare(loader) first")
    return _rounds(worker, accelerator, loader, sampling, epochs)


def _rounds(
    worker: Worker, accelerator: Accelerator, loader: Iterable[T], sampling: str, epochs: float | None
) -> Iterator[T]:
    # What accelerate asks its own loaders: is this the last batch, so that a step is due?
    prepared: Any = loader
    prepared.begin()
    try:
        steps = accelerator.gradient_accumulation_steps
        for batch in worker.batches(loader, accumulate=steps, sampling=sampling, epochs=epochs):
            prepared.end_of_dataloader = worker.last_of_round
            yield batch
    finally:
        prepared.end()
