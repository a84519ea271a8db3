"""Giving a lease back, passing it on, changing it. Imports ``lease`` and the layers below it, not ``acquire``."""
