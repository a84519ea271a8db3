"""Several names at once."""
