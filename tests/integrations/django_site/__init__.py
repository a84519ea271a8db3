"""A project of Django with the integration: its settings and its models."""
