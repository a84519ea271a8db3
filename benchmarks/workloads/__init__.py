"""What runs inside a participant's process."""
