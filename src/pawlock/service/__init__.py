"""The HTTP lock service: ``pawlock serve``. Needs ``pip install 'pawlock[serve]'``."""
