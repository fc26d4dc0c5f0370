"""Any modality finds any other, though a third of the rows miss one.

python examples/three_modalities.py
"""

import numpy as np

from crossbit import CCAITQ
from crossbit.data import synthetic
from crossbit.evaluation import evaluate_model

data = synthetic(
    n=3000, classes=12, modalities={"image": 64, "text": 32, "sound": 24}, missing=0.3, seed=1
)
model = CCAITQ(n_bits=48).fit(**data.fit_arguments("train"))
evaluation = evaluate_model(model, data)

print(f"{model} learned from {data!r}")
for (query, base), report in evaluation.reports.items():
    found = report["mAP"]
    print(
        f"{query:>6} → {base:<6} mAP {100 * found.value:5.1f} %   chance {100 * (found.chance or 0):4.1f} %"
    )

own = [report["mAP"].value for (query, base), report in evaluation.reports.items() if query != base]
print(f"across modalities: {100 * np.mean(own):.1f} % on average")
