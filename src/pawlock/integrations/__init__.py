"""pawlock in frameworks: each module belongs to one, is imported on its own and uses only public names of pawlock.

``asgi`` is for FastAPI, Starlette and other ASGI frameworks, ``apscheduler`` for APScheduler 3,
``alembic`` for migrations, ``celery`` for Celery, ``django`` for Django.
"""
