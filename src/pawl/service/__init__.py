"""The HTTP lock service: ``pawl serve``. Needs ``pip install 'pawl[serve]'``."""
