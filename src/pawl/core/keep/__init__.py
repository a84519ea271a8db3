"""Renewing, losing, and giving back in the background. Imports ``state`` and the rooms below it."""
