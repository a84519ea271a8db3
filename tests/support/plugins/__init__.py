"""Pytest plugins of the project's own tests."""
