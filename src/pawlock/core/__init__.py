"""The decisions of pawlock: no clock, no socket, no thread, no randomness.

From the bottom up; a module imports only those before it:

- ``names``, ``options``, ``outcomes``, ``key``, ``scripts``: what a lock is called, how it behaves, what a server answers.
- ``runtime``, ``primitive``, ``faults``: what a runtime, a connection and a primitive must offer, and how they fail.
- ``local_queue``, ``records``, ``plan``: who waits in a client, what it holds and when that is due, one lock worked out.
- ``observers``, ``reports``, ``engine``: what one client knows and keeps, and who is notified.
- ``retry``, ``replicas``, ``server_check``, ``timed_runtime``, ``close``: asking again, and the end.
- ``lease``, ``wait``, ``inspect``: what a user holds and how it ends; what an acquisition does until it is granted.
- ``base_lease``, ``reentry``, ``extend``, ``maintenance``, ``operator``, ``client``, ``giving_up``: around one lease.
- ``acquire``, ``transfer``, ``stateless``: how a lease is got, goes to another process, or is ended by its token alone.
"""
