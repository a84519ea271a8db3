"""What is done in the background: one thread of a client does it, in both APIs, over connections of its own.

A user's function, and whoever waits in the client, is called where the client's users run (``Runtime.run_in_owner``): an
event loop may be blocked meanwhile, and nothing here waits for it. Imports ``release`` and the layers below it.
"""
