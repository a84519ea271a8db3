"""What is written under a lock."""

from django.db import models

from pawlock.integrations.django.fencing import FencedModel


class Import(models.Model):  # type: ignore[misc] # Django has no type marks
    source = models.CharField(max_length=40)
    fence = models.BigIntegerField(default=0)

    class Meta:
        app_label = "django_site"

    def __str__(self) -> str:
        return f"import of {self.source}"


class Stock(FencedModel):
    name = models.CharField(max_length=40)
    left = models.IntegerField(default=0)

    class Meta:
        app_label = "django_site"

    def __str__(self) -> str:
        return f"{self.left} of {self.name}"


class Tea(Stock):
    """A row in two tables."""

    kind = models.CharField(max_length=40)

    class Meta:
        app_label = "django_site"
