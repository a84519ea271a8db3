"""The tables, and something to sell."""

import time

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    stock = op.create_table(
        "stock",
        sa.Column("product", sa.String, primary_key=True),
        sa.Column("left", sa.Integer, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
    )
    time.sleep(0.5)  # long enough for the other hosts to come
    op.create_table(
        "orders",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("product", sa.String, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "reports",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("day", sa.String, nullable=False),
        sa.Column("worker", sa.Integer, nullable=False),
    )
    op.bulk_insert(stock, [{"product": "socks", "left": 25}])
