"""Getting a lease. Imports ``lease`` and the layers below it, not ``release``."""
