"""Django's settings; everything that differs from machine to machine comes from the environment."""

import os

SECRET_KEY = "tests only"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "tests.nightly.apps.desk.urls"
INSTALLED_APPS = ["tests.nightly.apps.desk"]
MIDDLEWARE: list[str] = []
WSGI_APPLICATION = "tests.nightly.apps.desk.wsgi.application"
ASGI_APPLICATION = "tests.nightly.apps.desk.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["DESK_DATABASE"],
        "OPTIONS": {"timeout": 60},
    }
}
