"""The lease that a user holds. Imports ``keep``, ``retry`` and the layers below them."""
