"""Where the views are found."""

from django.urls import path

from tests.nightly.apps.desk import views

urlpatterns = [
    path("tickets/<int:number>/reply", views.reply),
    path("tickets/<int:number>/areply", views.async_reply),
]
