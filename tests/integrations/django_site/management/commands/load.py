"""``manage.py load SOURCE``: cron starts it everywhere, and one machine does it."""

import argparse
import time

from django.core.management.base import BaseCommand

from pawlock.integrations.django import OneAtATime
from tests.integrations.django_site.models import Import


class Command(OneAtATime, BaseCommand):  # type: ignore[misc] # Django has no type marks
    lock = "import:{source}"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("source")
        parser.add_argument("--seconds", type=float, default=0.0)

    def handle(self, *_args: object, source: str, seconds: float, **_options: object) -> None:
        time.sleep(seconds)
        Import.objects.create(source=source, fence=self.lease.fence)
        self.stdout.write("loaded")
