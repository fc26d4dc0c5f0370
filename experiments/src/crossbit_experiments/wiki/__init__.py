"""The paper's third experiment: Wikipedia articles and their images, 32 bits."""
