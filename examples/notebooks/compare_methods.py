# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Compare methods like a paper
#
# One data set, one split, one metric, five seeds. Every method is asked the same: with a text, rank
# all pictures of the test split. Methods have their default inputs; three of them run on class
# posteriors as well, because inputs often matter more than the method.

# %%
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

from crossbit import HASHERS
from crossbit.data import synthetic
from crossbit.evaluation import evaluate_model

data = synthetic(n=900, classes=8, noise=1.2, seed=2)
train = data.part("train")
methods = {
    name: HASHERS[name](n_bits=32)
    for name in ("lsh", "ccaitq", "cmfh", "scmseq", "classridge", "dch", "scratch", "batch")
}
for name in ("lsh", "dch", "batch"):
    methods[f"{name}, posteriors"] = HASHERS[name](n_bits=32, inputs="posteriors")

# %%
scores = {}
for name, method in methods.items():
    needs_labels = "labels" in method.supervision or method.inputs == "posteriors"
    values = []
    for seed in range(5):
        hasher = replace(method, seed=seed)
        model = hasher.fit(train.views, labels=train.labels if needs_labels else None)
        report = evaluate_model(model, data).reports["text", "image"]
        values.append(100 * report["mAP"].value)
    scores[name] = values
chance = 100 * (report["mAP"].chance or 0)

# %% [markdown]
# Bars are means, lines one standard deviation over the seeds; the dashed line is a random order.

# %%
order = sorted(scores, key=lambda name: np.mean(scores[name]))
means = [np.mean(scores[name]) for name in order]
deviations = [np.std(scores[name], ddof=1) for name in order]
plt.figure(figsize=(7, 4))
plt.barh(order, means, xerr=deviations, color="#5c6bc0")
plt.axvline(chance, linestyle="--", color="black", linewidth=1)
plt.xlabel("mAP of text → image, %")
plt.show()
for name in reversed(order):
    print(f"{name:17} {np.mean(scores[name]):5.1f} ± {np.std(scores[name], ddof=1):.1f}")

# %% [markdown]
# What exactly is the number? Every result says it:

# %%
print(report["mAP"].definition)
