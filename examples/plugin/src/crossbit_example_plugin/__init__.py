"""A plug-in for Crossbit: one hasher and one feature extractor."""
