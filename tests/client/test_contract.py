"""The contract tests of collections, over HTTP with a real service and with both clients."""

from tests.contracts.test_collections import *  # noqa: F403
