"""What is written under a lock."""

from django.db import models


class Import(models.Model):  # type: ignore[misc] # Django has no type marks
    source = models.CharField(max_length=40)
    fence = models.BigIntegerField(default=0)

    class Meta:
        app_label = "django_site"

    def __str__(self) -> str:
        return f"import of {self.source}"
