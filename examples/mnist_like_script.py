"""An ordinary training script that `orlomo run` can train on many workers.

    python examples/mnist_like_script.py --save model.pt
    orlomo run --workers 4 --local-steps 8 examples/mnist_like_script.py --save model.pt

`mnist_like_script_before.py` is the same script before: the five lines with `orlomo` or `worker` differ.
"""

import argparse

import orlomo
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """1,500 images of 8 x 8 pixels to train on, 297 to test."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[:1500], order[1500:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def build_model() -> nn.Module:
    """A small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


@torch.no_grad()
def evaluate(model: nn.Module, test: TensorDataset) -> float:
    """The share of the test images that the model recognises."""
    model.eval()
    images, labels = test.tensors
    return (model(images).argmax(1) == labels).float().mean().item()


def main() -> None:
    """Train, evaluate, save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", help="where to save the trained model")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train, test = load_data()
    loader = DataLoader(train, batch_size=args.batch_size, shuffle=True)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * len(loader))
    worker = orlomo.worker().attach(model, optimizer, scheduler=scheduler)

    for epoch in worker.epochs(args.epochs):
        model.train()
        for images, labels in worker.batches(loader):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}")

    print(f"test accuracy: {evaluate(model, test):.1%}")
    if args.save and worker.chief:
        torch.save(model.state_dict(), args.save)


if __name__ == "__main__":
    main()
