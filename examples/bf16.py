"""Half-precision arithmetic and small pieces: `autocast` and `micro_batch`.

    python examples/bf16.py
    orlomo train examples/bf16.py:task --engine processes --workers 2

The forward pass and the loss are computed in bfloat16, in pieces of 16 samples of each batch of 64. Parameters,
gradients and what is exchanged stay float32.
"""

from __future__ import annotations

import dataclasses

import orlomo

digits = orlomo.task("digits")
task = dataclasses.replace(digits, autocast="bfloat16", batch_size=64, micro_batch=16)

if __name__ == "__main__":
    method = orlomo.OrLoMo(learning_rate=0.1, local_steps=4)
    run = orlomo.train(task, method, workers=8, cluster="heterogeneous", epochs=40)
    print(f"accuracy {run.metric_columns['test_accuracy'][-1]:.1%}, parameters are {run.params.dtype}")
    print(orlomo.replay(run.folder, task=task))
