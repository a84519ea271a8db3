"""Nodes and addresses: pure functions and records."""
