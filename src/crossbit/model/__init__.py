"""What learning leaves behind: layers, the model that chains them, and how raw things become its rows."""

from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import (
    RBF,
    Affine,
    Layer,
    Normalise,
    Onnx,
    Power,
    Sine,
    Softmax,
    Standardise,
    Tanh,
)
from crossbit.model.recipe import Recipe

__all__ = [
    "HashModel",
    "Recipe",
    "Layer",
    "Normalise",
    "Power",
    "Standardise",
    "RBF",
    "Affine",
    "Tanh",
    "Sine",
    "Softmax",
    "Onnx",
]
