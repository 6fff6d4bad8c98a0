"""A character-level GPT with AdamW: asynchronous against synchronous training on machines of unequal speed.

    python examples/character_gpt.py                                   # trains alone, on the short text below
    orlomo run --method local-ormo-da --workers 4 examples/character_gpt.py --text FILE     # on four processes
    python examples/character_gpt.py --compare runs/gpt --text FILE    # both methods, simulated, and a plot of them

A quarter of the workers takes four times as long. With local-sgd all wait for them in each round; with local-ormo-da
nobody waits. With --synchronous-epochs local-sgd takes fewer epochs, to compare both after the same time.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import orlomo

TEXT = """
The mill stood at the bend of the river, where the water was slow and brown in summer and quick and grey in spring.
Its wheel had turned for a hundred years, and the miller said that it would turn for a hundred more, if only the
river would let it. In the mornings the farmers came with their carts, one after another, and each of them waited
for the one before him. The cart of old Marten was the slowest of all, and behind it the road was full of men who
had nothing to do but wait.

One day the miller's daughter stood at the gate and watched them. She saw that the first cart was unloaded in a
moment, and the second in a moment, and that then all of them stood still, because Marten had lost a wheel on the
hill. Let those who are here go in, she said, and let Marten go in when he comes. The farmers looked at each other.
It had never been done that way, they said, and the flour might be worse for it. But they tried it, and in the
evening all the grain was ground, and the flour was as white as it had ever been.

There was one thing that she had to be careful about. The miller wrote down in his book how much each of them had
brought, and he liked to add the numbers up in the order of the road. When Marten came in late, his sacks were
counted with those of the next day, and the sum was wrong. So she drew a line in the book for every day, and when
Marten came, she put his sacks above the line under which they belonged, and made them count a little less, for they
were old by then. After that the sums were right again, and nobody had to wait at the gate any more, neither in
summer nor in spring.
"""


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Pieces of a text, one after another, each with the characters that follow."""

    def __init__(self, characters: Tensor, length: int):
        self.characters, self.length = characters, length

    def __len__(self) -> int:
        return (len(self.characters) - 1) // self.length

    def __getitem__(self, position: int) -> tuple[Tensor, Tensor]:
        begin = position * self.length
        piece = self.characters[begin : begin + self.length + 1]
        return piece[:-1], piece[1:]


class Block(nn.Module):
    """Attention to the characters before, and a small network."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Both, each added to its input."""
        batch, length, width = x.shape
        parts = self.attention(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.network(self.before_network(x))


class CharacterGPT(nn.Module):
    """A GPT over single characters; the first and the last layer have the same weights."""

    def __init__(self, characters: int, length: int, width: int, layers: int, heads: int = 4):
        super().__init__()
        self.characters, self.positions = nn.Embedding(characters, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.last_norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters, bias=False)
        nn.init.normal_(self.characters.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.head.weight = self.characters.weight

    def forward(self, x: Tensor) -> Tensor:
        """For each character, how likely the next one is."""
        hidden = self.characters(x) + self.positions.weight[: x.shape[1]]
        return self.head(self.last_norm(self.blocks(hidden)))


def mean_loss(model: nn.Module, data: Windows) -> float:
    """The mean loss per character, in evaluation mode."""
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in DataLoader(data, batch_size=64):
            total += functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").item()
    model.train()
    return total / (len(data) * data.length)


def train(worker: orlomo.Worker, options: argparse.Namespace) -> None:
    """The training loop: an ordinary one, except for the lines with `worker`."""
    torch.manual_seed(options.seed)
    text = Path(options.text).read_text("utf-8") if options.text else TEXT
    alphabet = sorted(set(text))
    numbers = {character: number for number, character in enumerate(alphabet)}
    characters = torch.tensor([numbers[character] for character in text])
    cut = len(characters) * 9 // 10
    data, validation = Windows(characters[:cut], options.length), Windows(characters[cut:], options.length)
    loader = DataLoader(data, batch_size=options.batch_size, shuffle=True)

    model = CharacterGPT(len(alphabet), options.length, options.width, options.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.01)
    steps = options.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=steps + 1, cycle_momentum=False)

    worker.attach(
        model, optimizer, scheduler=scheduler, evaluate=lambda: {"validation_loss": mean_loss(model, validation)}
    )
    for _ in worker.epochs(options.epochs):
        for x, y in worker.batches(loader):
            optimizer.zero_grad()
            functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
    if worker.chief:
        print(f"validation loss: {mean_loss(model, validation):.3f}")


def compare(options: argparse.Namespace) -> None:
    """The same loop with two methods on the same machines, one after the other, and a plot of both."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    synchronous = orlomo.LocalSGD(local_steps=options.local_steps)
    asynchronous = orlomo.LocalOrMoDA(local_steps=options.local_steps, momentum=options.momentum)
    for method, epochs in ((synchronous, options.synchronous_epochs or options.epochs), (asynchronous, options.epochs)):
        name, loop = method.name, partial(train, options=argparse.Namespace(**{**vars(options), "epochs": epochs}))
        run = orlomo.launch(
            loop,
            method,
            workers=options.workers,
            engine="simulated",
            cluster="heterogeneous:4",
            evaluate_every=options.evaluate_every,
            seed=options.seed,
            out=options.compare / name,
        )
        seconds, loss = run.metric_columns["seconds"], run.metric_columns["validation_loss"]
        print(f"{name}: validation loss {loss[-1]:.3f} after {seconds[-1]:.0f} steps of a fast worker")
        if options.replay:
            print(orlomo.replay(run.folder, task=loop))
        axes.plot(seconds, loss, label=name)
    axes.set(xlabel="time (mean local steps of a fast worker)", ylabel="validation loss per character")
    axes.legend()
    axes.figure.savefig(options.compare / "losses.png", dpi=150)


def main() -> None:
    """Train alone or in a run, or compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", help="a file with the text to learn; without it, a short one")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--length", type=int, default=32, help="characters that the model sees")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compare", type=Path, metavar="FOLDER", help="train with two methods, into this new folder")
    parser.add_argument("--workers", type=int, default=4, help="with --compare")
    parser.add_argument("--local-steps", type=int, default=4, help="with --compare")
    parser.add_argument("--momentum", type=float, default=0.5, help="with --compare: on the server, of local-ormo-da")
    parser.add_argument("--synchronous-epochs", type=int, help="with --compare: of local-sgd (default: --epochs)")
    parser.add_argument("--replay", action="store_true", help="with --compare: compute both again: the same bits?")
    parser.add_argument("--evaluate-every", type=float, default=1.0, help="with --compare: epochs")
    options = parser.parse_args()
    if options.compare:
        compare(options)
    else:
        train(orlomo.worker(), options)


if __name__ == "__main__":
    main()
