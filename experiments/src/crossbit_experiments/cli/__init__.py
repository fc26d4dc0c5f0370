"""Command line of the experiments: ``crossbit reproduce``."""
