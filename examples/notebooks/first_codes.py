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
# # What a shared code looks like
#
# Two kinds of features of the same things are hashed into 32 bits each. Things of one class get
# similar codes, whichever kind of feature they come from.

# %%
import matplotlib.pyplot as plt
import numpy as np

import crossbit
from crossbit import hamming
from crossbit.data import synthetic

data = synthetic(n=600, classes=4, modalities={"image": 64, "text": 20}, noise=0.3, seed=1)
train, test = data.part("train"), data.part("test")
data

# %%
model = crossbit.fit(train.views, labels=train.labels, n_bits=32)
images = model.encode("image", test.views["image"])
texts = model.encode("text", test.views["text"])
model

# %% [markdown]
# Each row below is an item, each column a bit. The items are sorted by their class, so that equal
# codes are below each other; left from pictures, right from texts.

# %%
order = np.argsort(np.asarray(test.labels), kind="stable")
figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True)
for axis, codes, name in zip(axes, (images, texts), ("image", "text"), strict=True):
    axis.imshow(codes.unpack()[order], aspect="auto", cmap="Greys", interpolation="nearest")
    axis.set(title=name, xlabel="bit")
axes[0].set_ylabel("item, by class")
plt.show()

# %% [markdown]
# How far apart are a text and a picture? Pairs of one class are near, the others are not.

# %%
distances = hamming(texts, images)
same = np.equal.outer(np.asarray(test.labels), np.asarray(test.labels))
bins = [bit - 0.5 for bit in range(34)]
plt.figure(figsize=(9, 3))
plt.hist(distances[same], bins, density=True, alpha=0.7, label="same class")
plt.hist(distances[~same], bins, density=True, alpha=0.7, label="other class")
plt.xlabel("bits that differ, of 32")
plt.legend()
plt.show()
