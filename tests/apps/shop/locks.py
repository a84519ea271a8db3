"""The one client of the process, made when the module is imported, as most applications do."""

import pawl

locks = pawl.connect(namespace="shop")
async_locks = pawl.connect_async(namespace="shop")
