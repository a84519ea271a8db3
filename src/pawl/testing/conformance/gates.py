"""What is promised of the gates, which give no lease: the latch and the barrier."""
