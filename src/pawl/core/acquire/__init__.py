"""Getting a lease. Imports ``lease`` and the rooms below it, not ``release``."""
