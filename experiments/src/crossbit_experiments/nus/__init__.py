"""The paper's second experiment: photographs with tags and several concepts each, 64 bits, the first ten places."""
