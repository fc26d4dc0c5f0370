"""``crossbit reproduce``: the command line of the experiments."""
