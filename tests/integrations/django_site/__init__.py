"""A project of Django with the integration: its settings, its urls, one model and two commands."""
