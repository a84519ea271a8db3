"""Telling others of locks: deadlocks, histories, inspection, operators. Imports ``lease`` and the rooms below it."""
