"""The clients of the process, one for each API."""

import pawl

locks = pawl.connect(namespace="desk")
async_locks = pawl.connect_async(namespace="desk")
