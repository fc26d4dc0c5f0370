"""Views, labels and pairs; data sets on disk; converters and generators."""
