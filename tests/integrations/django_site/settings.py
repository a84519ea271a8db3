"""Settings; what differs from test to test comes from the environment."""

import os

SECRET_KEY = "tests only"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["tests.integrations.django_site"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["SITE_DATABASE"],
        "OPTIONS": {"timeout": 60},
    }
}
PAWLOCK = {"URL": os.environ["SITE_LOCKS"], "NAMESPACE": "site"}
