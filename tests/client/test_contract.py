"""The contract tests of collections, over HTTP with a real service."""

from tests.contracts.test_collections import *  # noqa: F403
