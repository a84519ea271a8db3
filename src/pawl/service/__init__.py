"""The HTTP lock service: ``pawl serve``. Needs ``pip install 'pawlock[serve]'``."""
