"""The decisions of pawlock: no clock, no socket, no thread, no randomness.

Its layers, lowest first; a layer imports only those before it in this list:

- ``protocol``: what a runtime, a connection and a primitive must offer; names, scripts, options, time.
- ``state``: what one client knows, and the steps that change it.
- ``keep``: renewing, losing, and giving back in the background.
- ``retry``: how long a caller retries a server that does not answer.
- ``lease``: the lease that a user holds.
- ``acquire``, ``release``: getting a lease, and giving it back or passing it on; neither imports the other.
- ``observe``: inspection and what an operator asks for.
- ``maintenance``, ``client``, ``close``, ``trial``: what a client does in the background, how it begins, tries itself, ends.
"""
