"""Lean connections to one node."""
