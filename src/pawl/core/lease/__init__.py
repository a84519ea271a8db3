"""The lease that a user holds. Imports ``keep``, ``retry`` and the rooms below them."""
