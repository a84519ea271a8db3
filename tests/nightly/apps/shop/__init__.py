"""An online shop as a team would write it: FastAPI, SQLAlchemy, Celery, APScheduler and Alembic around one client."""
