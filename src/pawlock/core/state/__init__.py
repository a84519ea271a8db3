"""What one client knows, and the steps that change it; no I/O. Imports ``protocol``."""
