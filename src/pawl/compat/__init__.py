"""Drop-in replacements for the locks of other libraries. They stand on pawl's public API alone."""
