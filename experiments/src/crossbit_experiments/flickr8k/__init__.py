"""Photographs with captions, judged by concepts: the paper's second experiment on pictures that can be had."""
