"""Inputs: how the features of each modality are prepared before a method learns from them.

``inputs=`` is the same argument of every method: fixed steps (`steps`), ``"auto"`` (`choice`) or
``"posteriors"`` (`posteriors`), for all modalities or by modality.
"""

from crossbit.inputs.preparation import Inputs, Preparation, prepare, prepare_posteriors

__all__ = ["Inputs", "Preparation", "prepare", "prepare_posteriors"]
