"""Benchmarks of pawl against the locks people use today, measured side by side on one machine."""
