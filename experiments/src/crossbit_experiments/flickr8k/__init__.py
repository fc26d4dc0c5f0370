"""Flickr8k: the paper's second experiment on available photographs, with concepts from captions."""
