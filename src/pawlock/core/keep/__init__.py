"""Renewing, losing, and giving back in the background. Imports ``state`` and the layers below it."""
