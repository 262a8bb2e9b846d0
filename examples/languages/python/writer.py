"""Places an order and writes its events, each in the transaction of its change, with SQLAlchemy.

    DATABASE_URL=postgresql+psycopg://app@localhost/app python3 writer.py 42
"""

import os
import sys
import uuid

from sqlalchemy import BigInteger, Text, create_engine, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    status: Mapped[str] = mapped_column(Text)


class Event(Base):
    __tablename__ = "outbox"
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    aggregatetype: Mapped[str]
    aggregateid: Mapped[str]
    type: Mapped[str]
    payload: Mapped[dict] = mapped_column(JSONB)


def record(session: Session, order: Order, type: str) -> None:
    session.add(Event(aggregatetype="order", aggregateid=str(order.id), type=type,
                      payload={"id": order.id, "status": order.status}))
    session.flush()  # the unit of work would write two events in an order of its own


def place_and_pay(engine, id: int) -> None:
    with Session(engine) as session, session.begin():
        order = Order(id=id, status="PLACED")
        session.add(order)
        session.flush()
        record(session, order, "OrderPlaced")
    with Session(engine) as session, session.begin():
        # The lock keeps the events of an order in the order of its changes.
        order = session.execute(select(Order).where(Order.id == id).with_for_update()).scalar_one()
        order.status = "PAID"
        record(session, order, "OrderPaid")


if __name__ == "__main__":
    place_and_pay(create_engine(os.environ["DATABASE_URL"]), int(sys.argv[1]))
