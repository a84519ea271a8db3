"""Benchmarks of pawlock against the locks people use today, measured side by side on one machine."""
