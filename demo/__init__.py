"""`make demo`: a shop sells more than it has, and with pawlock it does not, not even when a seller is killed."""
