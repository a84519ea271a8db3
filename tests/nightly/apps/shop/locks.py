"""The one client of the process, made when the module is imported, as most applications do."""

import pawlock

locks = pawlock.connect(namespace="shop")
async_locks = pawlock.connect_async(namespace="shop")
