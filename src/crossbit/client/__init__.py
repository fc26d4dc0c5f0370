"""Clients of the service: the verbs of `Collection` over HTTP."""

from crossbit._validation import check_installed

check_installed("httpx2")  # a missing library is reported with its remedy

from crossbit.client._async import AsyncClient  # noqa: E402
from crossbit.client._sync import Client  # noqa: E402

__all__ = ["connect", "Client", "AsyncClient"]


def connect(
    url: str,
    *,
    collection: str | None = None,
    token: str | None = None,
    timeout: float = 30.0,
    retries: int = 3,
) -> Client:
    """Connect to a service: the result has the verbs of `Collection`.

    Args:
        url: Address of the service, such as ``"http://localhost:8000"``, or of one of its
            collections, such as ``"http://localhost:8000/api/collections/photos"``.
        collection: Name of a collection of the service; None for the default one.
        token: Token of a service that needs one.
        timeout: Seconds that one attempt of a request may take.
        retries: Number of further attempts of a request that may be repeated.
    """
    client = Client(url, collection=collection, token=token, timeout=timeout, retries=retries)
    try:
        client.describe()
    except BaseException:
        client.close()
        raise
    return client
