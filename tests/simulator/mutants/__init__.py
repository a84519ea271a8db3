"""Protocols that are wrong on purpose; each must be found by a seed of the simulator."""
