"""What is built on acquire and release: several names at once, latches, barriers, elections."""
