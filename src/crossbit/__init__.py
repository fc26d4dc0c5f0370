"""Hash things of different kinds into one space of short binary codes, and search anything with anything."""
