"""A small GPT over characters, trained with AdamW: asynchronous against synchronous on machines of unequal speed.

    python examples/character_gpt.py                                          # alone: an ordinary training script
    orlomo run --method local-ormo-da --workers 4 examples/character_gpt.py   # the same on four processes
    python examples/character_gpt.py --compare runs/gpt                       # two methods, simulated
    orlomo report runs/gpt                                                    # both on one page

It learns the source code of Python's argparse module, or --text FILE. In the comparison two of eight workers take four
times as long. Both methods get about the same time: local-sgd, which waits for these two, does a third of the epochs.
"""

import argparse
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import orlomo

LENGTH, BATCH = 64, 16  # characters that the model sees, and texts per batch


def windows(characters):
    """Pieces of the text, one after another, each with the characters that follow."""
    end = (len(characters) - 1) // LENGTH * LENGTH
    return TensorDataset(characters[:end].view(-1, LENGTH), characters[1 : end + 1].view(-1, LENGTH))


class CharacterGPT(nn.Module):
    """For each character, how likely the next one is."""

    def __init__(self, characters, width, layers):
        super().__init__()
        self.characters, self.positions = nn.Embedding(characters, width), nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, characters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, x):
        return self.head(self.blocks(self.characters(x) + self.positions.weight, self.mask, is_causal=True))


def loss_of(model, x, y):
    """The mean loss per character."""
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def validate(model, data):
    """The same on the text that is not trained on."""
    model.eval()
    with torch.no_grad():
        loss = loss_of(model, *data.tensors).item()
    model.train()
    return {"validation_loss": loss}


def train(worker, options, epochs):
    """An ordinary training loop, except for the lines with `worker`."""
    torch.manual_seed(0)
    text = Path(options.text).read_text("utf-8")
    alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
    characters = torch.tensor([alphabet[character] for character in text])
    cut = len(characters) * 9 // 10
    loader, validation = DataLoader(windows(characters[:cut]), BATCH, shuffle=True), windows(characters[cut:])
    model = CharacterGPT(len(alphabet), width=64, layers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    worker.attach(model, optimizer, scheduler=scheduler, evaluate=lambda: validate(model, validation))
    for _ in worker.epochs(epochs):
        for x, y in worker.batches(loader):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
    if worker.chief:
        print(f"validation loss per character: {validate(model, validation)['validation_loss']:.3f}")


def compare(options):
    """The same loop with two methods on the same machines."""
    synchronous, asynchronous = orlomo.LocalSGD(local_steps=8), orlomo.LocalOrMoDA(local_steps=8, momentum=0.5)
    for method, epochs in ((synchronous, options.epochs // 3), (asynchronous, options.epochs)):
        loop, out = partial(train, options=options, epochs=epochs), f"{options.compare}/{method.name}"
        more = {"engine": "simulated", "cluster": "heterogeneous:4", "evaluate_every": epochs / 24}
        run = orlomo.launch(loop, method, workers=8, out=out, **more)
        end = run.metrics.iloc[-1]
        print(f"{method.name}: loss {end.validation_loss:.3f} after {end.seconds:.0f} virtual seconds, {epochs} epochs")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", default=argparse.__file__, help="a file with the text to learn")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--compare", metavar="FOLDER", help="train with two methods, into this new folder")
    given = parser.parse_args()
    compare(given) if given.compare else train(orlomo.worker(), given, given.epochs)
