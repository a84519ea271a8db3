"""The clients of the process, one for each API."""

import pawlock

locks = pawlock.connect(namespace="desk")
async_locks = pawlock.connect_async(namespace="desk")
