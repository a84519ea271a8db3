"""A ticket remembers the fencing token of the agent who changed it last."""

from django.db import models


class Ticket(models.Model):  # type: ignore[misc] # Django has no type marks
    number = models.IntegerField(unique=True)
    replies = models.IntegerField(default=0)
    token = models.BigIntegerField(default=0)

    class Meta:
        app_label = "desk"

    def __str__(self) -> str:
        return f"ticket {self.number}"


class Import(models.Model):  # type: ignore[misc] # as above
    source = models.CharField(max_length=40)
    process = models.IntegerField()

    class Meta:
        app_label = "desk"

    def __str__(self) -> str:
        return f"import of {self.source}"
