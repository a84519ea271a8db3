"""Giving a lease back, passing it on, changing it. Imports ``lease`` and the rooms below it, not ``acquire``."""
