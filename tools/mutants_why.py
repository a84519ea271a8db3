"""Why a mutant was not noticed: those that nobody can tell from pawl, and those that a test could."""

SAME: dict[str, str] = {}
"""The same to every caller, within what pawl promises."""

OPEN: dict[str, str] = {}
"""Somebody could tell, and no test does."""
