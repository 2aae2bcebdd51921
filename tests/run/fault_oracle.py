"""What the tables of `fault_streams` must hold after both arrivals, in plain Python."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from tidemill.testing import multiset

START = datetime(2026, 1, 1, tzinfo=UTC)
DELAY = timedelta(minutes=10)
WINDOW = timedelta(minutes=5)


def minute(number):
    return START + timedelta(minutes=number)


def orders_of(minutes, customers=2):
    return [
        {"order_id": f"o{m}", "customer": f"c{m % customers}", "amount": m + 1, "at": minute(m).isoformat()}
        for m in minutes
    ]


def payments_of(minutes):
    return [{"order_id": f"o{m}", "paid_at": (minute(m) + timedelta(minutes=2)).isoformat()} for m in minutes]


# Two arrivals; the second moves the watermark over windows, sessions and joins of the first.
FIRST, SECOND = range(10), range(40, 50)
ORDERS = orders_of(FIRST), orders_of(SECOND)
PAYMENTS = payments_of(range(0, 10, 3)), payments_of(range(40, 50, 3))
WATERMARK = minute(max(SECOND)) - DELAY
PAID_WATERMARK = minute(49 + 2) - DELAY
BAD = {"order_id": "bad", "customer": "c0", "amount": 0, "at": START.isoformat()}
OWNERS = (
    [{"customer": c, "owner": f"first of {c}", "seq": 1, "at": START.isoformat()} for c in ("c0", "c1")],
    [{"customer": "c0", "owner": "second of c0", "seq": 2, "at": minute(30).isoformat()}],
)


def expected_ingest():
    return multiset((order["order_id"],) for arrival in ORDERS for order in arrival)


def expected_copied():
    return multiset((order["order_id"], order["amount"]) for arrival in ORDERS for order in arrival)


def expected_windows():
    counts = Counter(START + (minute(m) - START) // WINDOW * WINDOW for m in (*FIRST, *SECOND))
    return multiset((start, n) for start, n in counts.items() if start + WINDOW <= WATERMARK)


def expected_visits():
    """Orders come each minute, so a customer's visit is a whole arrival; the second is still open."""
    starts = {customer: minute(customer) for customer in (0, 1)}
    return multiset((f"c{customer}", start, 5) for customer, start in starts.items())


def expected_paid():
    paid = {p["order_id"]: datetime.fromisoformat(p["paid_at"]) for arrival in PAYMENTS for p in arrival}
    watermark = min(WATERMARK, PAID_WATERMARK)
    rows = []
    for order in (order for arrival in ORDERS for order in arrival):
        at = datetime.fromisoformat(order["at"])
        if order["order_id"] in paid:
            rows.append((order["order_id"], paid[order["order_id"]]))
        elif at + WINDOW < watermark:
            rows.append((order["order_id"], None))
    return multiset(rows)


def expected_totals():
    totals = {}
    for order in (order for arrival in ORDERS for order in arrival):
        n, amount = totals.get(order["customer"], (0, 0))
        totals[order["customer"]] = (n + 1, amount + order["amount"])
    return multiset((customer, *total) for customer, total in totals.items())


def expected_best():
    amounts = [(amount, customer) for customer, _, amount in expected_totals()]
    return multiset([(customer, amount) for amount, customer in [max(amounts)]])


def expected_owners():
    return multiset(
        [
            ("c0", "first of c0", START, minute(30)),
            ("c0", "second of c0", minute(30), None),
            ("c1", "first of c1", START, None),
        ]
    )
