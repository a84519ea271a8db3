"""Server settings that would break a guarantee: facts in, findings out. Pure, and below the core."""
