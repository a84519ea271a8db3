"""A server that is no server: pawlock's own scripts on keys in memory, in the process of a test.

The clients are the real ones, sync or async, down to the last step: where a connection would send a request, the
script runs here. ``Memory`` runs in real time, ``Sim`` in a time that the test moves.
"""

from __future__ import annotations

from pawlock.testing.memory.place import Memory, Sim

__all__ = ["Memory", "Sim"]
