"""LoRA fine-tuning with the Trainer of Hugging Face: only the adapters travel between workers and server.

    python examples/lora_huggingface.py                                              # alone
    orlomo run --method local-ormo-da --momentum 0.9 --local-steps 4 --workers 2 examples/lora_huggingface.py

Needs `pip install 'orlomo[huggingface]'`. The model is a small one of no use, so that nothing is downloaded: take
`AutoModelForCausalLM.from_pretrained(...)` and your own data set in its place.
"""

import argparse

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments, set_seed

from orlomo.integrations.huggingface import OrlomoTrainer

TEXT = """
Whoever keeps bees knows the sound of a hive before a swarm: first a hum, then a roar, then a cloud in the apple trees.
A slow machine in a row of fast ones is no use to anybody who waits for it, and of much use to all who do not.
The ferry crosses at seven, at nine and at noon, and in winter not at all; who misses it walks over the hills.
""".strip()
SIZES = {"vocab_size": 128, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2}


def samples(length: int = 32) -> list[dict[str, torch.Tensor]]:
    """Parts of the text, each beginning two letters after the one before; the labels are the letters themselves."""
    letters = torch.tensor(list(TEXT.encode("ascii")))
    parts = [letters[first : first + length] for first in range(0, len(letters) - length, 2)]
    return [{"input_ids": part, "labels": part} for part in parts]


def main() -> None:
    """Train, and save the adapters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--out", default="lora")
    options = parser.parse_args()
    set_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**SIZES, bos_token_id=0, eos_token_id=0))
    adapters = LoraConfig(r=8, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    data = samples()
    trainer = OrlomoTrainer(
        get_peft_model(model, adapters),
        TrainingArguments(
            options.out,
            num_train_epochs=options.epochs,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            learning_rate=1e-2,
            eval_strategy="epoch",
            logging_steps=10,
            report_to=[],
            use_cpu=True,
        ),
        train_dataset=data[16:],
        eval_dataset=data[:16],
    )
    trainer.train()
    trainer.save_model()
    if trainer.worker.chief:
        print(f"the adapters are in {options.out}, loss {trainer.evaluate()['eval_loss']:.4f}")


if __name__ == "__main__":
    main()
