"""Ships each order once, with confluent-kafka and psycopg.

    BROKERS=localhost:9092 DATABASE_URL=postgres://app@localhost/app python3 consumer.py GROUP [COUNT]

It ends after COUNT records, or runs until it is interrupted.
"""

import os
import sys

import psycopg
from confluent_kafka import Consumer


def position(headers: dict[str, bytes]) -> tuple[int, int]:
    """The record's place in the order of commits, which compares."""
    high, low = headers["cdc-lsn"].decode().split("/")
    return int(high, 16) << 32 | int(low, 16), int(headers["cdc-seq"])


def handle(db: psycopg.Connection, consumer: str, message) -> None:
    headers = dict(message.headers() or [])
    lsn, seq = position(headers)
    with db.transaction():
        first = db.execute("INSERT INTO handled_events (consumer, event_id) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                           (consumer, headers["id"].decode())).rowcount
        if first:
            db.execute("INSERT INTO shipments (consumer, order_id, event, lsn, seq) VALUES (%s, %s, %s, %s, %s)",
                       (consumer, message.key().decode(), headers["eventType"].decode(), lsn, seq))


def main(group: str, count: float) -> None:
    consumer = Consumer({"bootstrap.servers": os.environ["BROKERS"], "group.id": group,
                         "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["outbox.event.order"])
    try:
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
            while count > 0:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if message.error():
                    raise RuntimeError(message.error())
                handle(db, "python", message)
                consumer.commit(message, asynchronous=False)  # after the transaction, never before
                count -= 1
    finally:
        consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else float("inf"))
