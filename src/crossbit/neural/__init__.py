"""Networks, losses and training with torch.

Import it inside the function that trains, so that everything else works without torch.
"""

from crossbit.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError("torch") from error
