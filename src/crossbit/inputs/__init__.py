"""Inputs of a method: how the features of each modality are prepared."""
