"""From arrays to a model folder to the ten nearest items, with features of your own.

python examples/own_features.py
"""

import tempfile
from pathlib import Path

import numpy as np

from crossbit import CCAITQ, HashModel, hamming

# Stand-ins for your features: 2,000 recordings and the readings of a second sensor taken at the same time.
random = np.random.default_rng(0)
event = random.normal(size=(2000, 12))
camera = np.tanh(event @ random.normal(size=(12, 128))) + 0.1 * random.normal(size=(2000, 128))
microphone = np.tanh(event @ random.normal(size=(12, 40))) + 0.1 * random.normal(size=(2000, 40))

# All that is known is which rows belong together.
model = CCAITQ(n_bits=64).fit({"camera": camera[:1500], "microphone": microphone[:1500]})

folder = Path(tempfile.mkdtemp()) / "sensors"
model.save(folder)
print("saved:", sorted(path.name for path in folder.iterdir()))

# Elsewhere, later, with NumPy alone: what did the camera see when the microphone heard this?
model = HashModel.load(folder)
seen = model.encode("camera", camera[1500:])
heard = model.encode("microphone", microphone[1500:])
distances = hamming(heard, seen)
print("nearest to recording 0:", distances[0].argsort(kind="stable")[:10].tolist())

own = np.diag(distances)[:, None]
rank = (distances < own).sum(axis=1)
print(
    f"the right recording is among the first ten of 500 for {100 * np.mean(rank < 10):.0f} % of the sounds"
)
