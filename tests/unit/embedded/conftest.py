"""A state folder for each test, and a server that does not outlive it."""

from tests.support.embedded import clean_environment, spawn, state

__all__ = ["clean_environment", "spawn", "state"]
