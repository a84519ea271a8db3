"""Which nodes and which addresses: pure."""
