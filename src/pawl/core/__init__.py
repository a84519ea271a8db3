"""The deciding part: no clock, no socket, no thread, no randomness."""
