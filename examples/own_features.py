"""Train on your own feature arrays, save the model, and search across modalities.

python examples/own_features.py
"""

import tempfile
from pathlib import Path

import numpy as np

from crossbit import CCAITQ, HashModel, hamming

# Stand-ins for your features: 2,000 events, each recorded by a camera and by a microphone.
random = np.random.default_rng(0)
event = random.normal(size=(2000, 12))
camera = np.tanh(event @ random.normal(size=(12, 128))) + 0.1 * random.normal(size=(2000, 128))
microphone = np.tanh(event @ random.normal(size=(12, 40))) + 0.1 * random.normal(size=(2000, 40))

# The only supervision: row i of both arrays is the same event.
model = CCAITQ(n_bits=64).fit({"camera": camera[:1500], "microphone": microphone[:1500]})

folder = Path(tempfile.mkdtemp()) / "sensors"
model.save(folder)
print("saved:", sorted(path.name for path in folder.iterdir()))

# Later, with NumPy alone: what did the camera see when the microphone heard this?
model = HashModel.load(folder)
camera_codes = model.encode("camera", camera[1500:])
microphone_codes = model.encode("microphone", microphone[1500:])
distances = hamming(microphone_codes, camera_codes)
print("nearest to recording 0:", distances[0].argsort(kind="stable")[:10].tolist())

distance_of_match = np.diag(distances)[:, None]
rank = (distances < distance_of_match).sum(axis=1)
share = 100 * np.mean(rank < 10)
print(f"the matching image is among the first ten of 500 for {share:.0f} % of the recordings")
