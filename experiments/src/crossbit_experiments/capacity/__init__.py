"""Capacity planning: machines for a sharded collection, and the latency of its queries."""
