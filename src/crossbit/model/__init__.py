"""The trained model: layers, the model that chains them, and recipes of its inputs."""

from crossbit.model.ensemble import Forest, Parallel
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import (
    RBF,
    Affine,
    Layer,
    Normalize,
    Onnx,
    Power,
    Sine,
    Softmax,
    Standardize,
    Tanh,
)
from crossbit.model.recipe import Recipe

__all__ = [
    "HashModel",
    "Recipe",
    "Layer",
    "Normalize",
    "Power",
    "Standardize",
    "RBF",
    "Affine",
    "Tanh",
    "Sine",
    "Softmax",
    "Onnx",
    "Parallel",
    "Forest",
]
