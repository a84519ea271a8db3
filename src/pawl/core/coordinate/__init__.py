"""What is built of acquire and release: several names at once, latches, barriers, elections."""
