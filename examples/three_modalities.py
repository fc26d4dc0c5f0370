"""Search any of three modalities with any other, although 30 % of the rows are missing in each.

python examples/three_modalities.py
"""

import numpy as np

from crossbit import CCAITQ
from crossbit.data import synthetic
from crossbit.evaluation import evaluate_model

widths = {"image": 64, "text": 32, "sound": 24}
data = synthetic(n=3000, classes=12, modalities=widths, missing=0.3, seed=1)
model = CCAITQ(n_bits=48).fit(**data.fit_arguments("train"))
evaluation = evaluate_model(model, data)

print(f"{model} trained on {data!r}")
for (query, base), report in evaluation.reports.items():
    mean = report["mAP"]
    chance = 100 * (mean.chance or 0)
    print(f"{query:>6} → {base:<6} mAP {100 * mean.value:5.1f} %   chance {chance:4.1f} %")

values = [
    report["mAP"].value for (query, base), report in evaluation.reports.items() if query != base
]
print(f"across modalities: {100 * np.mean(values):.1f} % on average")
