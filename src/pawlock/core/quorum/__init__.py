"""Votes of several independent masters, counted: pure arithmetic. Imports ``protocol``."""
