"""What of a server's settings would break a promise: facts in, findings out. Pure, and below the core."""
