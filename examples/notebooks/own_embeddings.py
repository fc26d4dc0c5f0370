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
# # How many bits do my embeddings need?
#
# Two encoders, no labels: row *i* of both arrays is the same item. We learn codes of several
# lengths from most of the rows and look for the partner of each of the others.

# %%
import matplotlib.pyplot as plt
import numpy as np

from crossbit import CCAITQ, hamming

random = np.random.default_rng(0)
item = random.normal(size=(2500, 24))
image = np.tanh(item @ random.normal(size=(24, 192)) / 4) + 0.9 * random.normal(size=(2500, 192))
text = np.tanh(item @ random.normal(size=(24, 96)) / 4) + 0.9 * random.normal(size=(2500, 96))
train, new = slice(0, 2000), slice(2000, 2500)

# %% [markdown]
# Recall@10 is the share of texts whose own picture is among the first ten of 500. Items at the same
# distance are counted as if they came in a random order.


# %%
def recall_at_10(distances: np.ndarray) -> float:
    """Expected share of rows whose diagonal entry is among the ten smallest."""
    own = np.diag(distances)[:, None]
    before = (distances < own).sum(axis=1)
    ties = (distances == own).sum(axis=1)
    return float(np.clip((10 - before) / ties, 0, 1).mean())


lengths = [8, 16, 32, 64, 128]
by_code = []
by_float = []
for n_bits in lengths:
    model = CCAITQ(n_bits=n_bits).fit({"image": image[train], "text": text[train]})
    words = model.encode("text", text[new])
    pictures = model.encode("image", image[new])
    by_code.append(recall_at_10(hamming(words, pictures).astype(float)))
    outputs = model.scores("text", text[new]) @ model.scores("image", image[new]).T
    by_float.append(recall_at_10(-outputs))

# %%
plt.figure(figsize=(7, 3.5))
plt.plot(lengths, by_code, "o-", label="codes")
plt.plot(lengths, by_float, "s--", label="real-valued outputs")
plt.xscale("log", base=2)
plt.xticks(lengths, [str(n) for n in lengths])
plt.ylim(0, 1)
plt.xlabel("bits")
plt.ylabel("recall@10 of 500")
plt.legend()
plt.show()
for n_bits, code, output in zip(lengths, by_code, by_float, strict=True):
    print(f"{n_bits:4} bits: codes {code:.2f}, real-valued outputs {output:.2f}")
