"""The async API: thin shells; the logic is in ``pawlock.core``."""
