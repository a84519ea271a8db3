"""Drop-in replacements for the locks of other libraries. They stand on pawlock's public API alone."""
