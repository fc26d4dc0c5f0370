"""A valid value that differs from the current one, for every field of every method."""

from typing import Any

VALUES: dict[str, Any] = {
    "n_bits": 12,
    "seed": 1,
    "inputs": {"image": "unit"},
    "regularization": 5.0,
    "step": 0.2,
    "device": "cpu",
    "candidates": ("batch", "ccaitq"),
    "rounds": 1,
    "batch.label_weight": 0.0,
    "dch.regression_weight": 100.0,
    "softap.steps": 7,
}
"""Field, or method and field, → another value where the rule of `another` does not suffice."""
NETWORKS: dict[str, Any] = {  # of mmnn and cmnn
    "hidden": (6,),
    "alpha": 0.1,
    "margin": "60%",
    "temperature": 0.3,
    "learning_rate": 0.01,
    "loss": "precision",
    "n_pairs": (50, 70),
    "beta": 2.0,
    "optimizer": "sgd",
    "batch": 16,
    "steps": 4,
}


def another(method: str, field: str, value: object) -> Any:  # noqa: ANN401 - any field
    """Return a value of the field that is valid and differs from the given one."""
    values = VALUES | NETWORKS if method in ("mmnn", "cmnn") else VALUES
    for key in (f"{method}.{field}", field):
        if key in values:
            return values[key]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return max(value // 3, 1) if value > 1 else 2
    if isinstance(value, float):
        return value / 2 if value else 0.5
    raise AssertionError(f"{method}: no other value of {field}={value!r} is listed")
