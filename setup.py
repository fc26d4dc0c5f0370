"""Builds the compiled kernels; everything else about the project is in pyproject.toml."""

from setuptools import setup

setup()
