"""Files and folders that are never half-written."""
