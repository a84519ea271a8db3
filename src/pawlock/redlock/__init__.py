"""Redlock: a lock that a majority of independent masters keeps. To the core it is one server that is polled.

- ``options``: how the masters are treated.
- ``requests``: what is sent to each of them, and the engine that makes it.
- ``votes``: what their answers come to.
- ``nodes``: what a client knows of each, and whether its vote counts.
- ``link``: one request to all, one answer; ``threads`` and ``tasks`` bring it to them.
"""
