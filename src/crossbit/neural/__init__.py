"""Networks, losses, optimizers and the one training loop: the only home of torch.

Import it inside the function that learns, so that everything else works where torch is not installed.
"""

from crossbit.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError("torch", "train") from error
