"""Linear algebra and optimization that the methods share; needs NumPy only."""
