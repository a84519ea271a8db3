"""pawl in frameworks: each module belongs to one, is imported on its own and uses only public names of pawl.

``pawl.integrations.asgi`` is for FastAPI, Starlette and other ASGI frameworks.
"""
