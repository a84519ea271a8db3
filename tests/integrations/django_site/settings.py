"""Settings; what differs from test to test comes from the environment."""

import os

SECRET_KEY = "tests only"
USE_TZ = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.integrations.django_site.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "pawlock.integrations.django",
    "tests.integrations.django_site",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["SITE_DATABASE"],
        "OPTIONS": {"timeout": 60},
    }
}
PAWLOCK = {"URL": os.environ["SITE_LOCKS"], "NAMESPACE": "site"}
