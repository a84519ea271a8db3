"""The sync API: thin shells; the logic is in ``pawlock.core``."""
