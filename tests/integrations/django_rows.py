"""Two holders write one row of a ``FencedModel`` at once, on a server: ``python FILE HOST USER DATABASE``.

The later one has the row first, and has not committed when the earlier one writes.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import django
from django.conf import settings

host, user, name = sys.argv[1:]
postgresql = {"ENGINE": "django.db.backends.postgresql", "HOST": host, "USER": user, "NAME": name}
settings.configure(DATABASES={"default": postgresql}, INSTALLED_APPS=["tests.integrations.django_site"])
django.setup()

from django.db import connection, transaction  # noqa: E402 - the settings come first
from django.db.models import F  # noqa: E402

import pawlock  # noqa: E402
from tests.integrations.django_site.models import Stock  # noqa: E402

with connection.schema_editor() as editor:
    editor.create_model(Stock)
tea, coffee = (Stock.objects.create(name=name, left=10) for name in ("tea", "coffee"))
outcomes: list[Any] = []


def earlier() -> None:
    try:
        outcomes.append(Stock.objects.write(8, left=0))
    except pawlock.StaleFence as error:
        outcomes.append(str(error))
    finally:
        connection.close()


def waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


with transaction.atomic():
    tea.write(9, left=F("left") - 1)
    late = threading.Thread(target=earlier)
    late.start()
    while not waits() and not outcomes:
        time.sleep(0.01)
late.join()
assert len(outcomes) == 1, outcomes
assert "token 9, and 8 is stale" in str(outcomes[0]), outcomes
assert list(Stock.objects.order_by("name").values_list("name", "left", "fence")) == [
    ("coffee", 10, 0),
    ("tea", 9, 9),
]
assert coffee.write(8, left=1).left == 1
connection.close()
print("the earlier holder wrote nothing")
