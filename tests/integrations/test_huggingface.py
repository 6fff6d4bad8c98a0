"""The Trainer of Hugging Face as a worker, with LoRA: a worker joins late, only one saves, only adapters travel."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import orlomo
from orlomo.commands.main import main

pytestmark = pytest.mark.skipif(
    not (find_spec("transformers") and find_spec("peft")), reason="transformers is not installed (`huggingface`)"
)
EXAMPLE = Path(__file__).parents[2] / "examples" / "lora_huggingface.py"
SCRIPT = Path(__file__).parent / "lora_with_a_joiner.py"


def test_a_late_worker_and_one_that_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    method = ["--method", "local-ormo-da", "--momentum", "0.9", "--local-steps", "4"]
    run_flags = ["--workers", "2", "--out", "run", "--quiet"]
    program = [SCRIPT, tmp_path / "run", EXAMPLE, "--epochs", "2.5", "--out", "lora"]
    assert main(["run", *method, *run_flags, *map(str, program)]) == 0
    run = orlomo.load("run")
    # Each of 139 samples once per epoch, in steps of at most two batches of four.
    rounds = run.round_columns
    assert set(rounds["worker"].tolist()) == {0, 1, 2}
    assert main(["audit", "run"]) == 0
    assert rounds["samples"].sum() == round(2.5 * 139)
    assert rounds["steps"].tolist() == [-(-samples // 8) for samples in rounds["samples"].tolist()]
    # The server has the adapters and nothing else, and they are what is saved, by worker 0 alone.
    assert set(Path("saved").read_text().split()) == {"0"}
    saved = load_file("lora/adapter_model.safetensors")
    assert len(run.params) == sum(value.numel() for value in saved.values())
    assert torch.equal(run.params.sort().values, torch.cat([v.flatten() for v in saved.values()]).sort().values)
    losses = run.metric_columns["eval_loss"]
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.filterwarnings("ignore")
def test_alone_nothing_changes(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

    from orlomo.integrations.huggingface import OrlomoTrainer

    data = [{"input_ids": part, "labels": part} for part in torch.arange(21 * 8).remainder(16).view(21, 8)]
    ended = []
    for kind in (Trainer, OrlomoTrainer):
        set_seed(0)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1))
        settings = {"num_train_epochs": 2, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}
        options = {"save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True}
        trainer = kind(model, TrainingArguments(str(tmp_path), **settings, **options), train_dataset=data)
        trainer.train()
        ended.append((trainer.state.log_history[-1]["train_loss"], [p.detach().clone() for p in model.parameters()]))
    (loss, params), (other_loss, other_params) = ended
    assert loss == other_loss
    assert all(torch.equal(one, other) for one, other in zip(params, other_params, strict=True))
