"""A help desk with Django: one ticket has one agent at a time, in sync and async views, and an import runs once."""
