"""Capacity planning: how many machines a sharded collection needs, and how long its queries wait."""
