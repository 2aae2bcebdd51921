"""Edits of tables that other streams read."""

from collections import Counter
from typing import TYPE_CHECKING

from bench.changes.edits.edit import Applied, edit
from bench.changes.world import World

if TYPE_CHECKING:
    from bench.changes.oracle import Rows


def _upstream(world: World) -> str | None:
    return "orders" if world.oracle.streams["orders"].commits else None


@edit
def delete_upstream(world: World) -> Applied | None:
    """Delete rows of a table that others read."""
    if _upstream(world) is None:
        return None
    digit = world.rng.randrange(7)
    state = world.oracle.streams["orders"]
    world.sql("DELETE FROM {table} WHERE id % 7 = {digit}", "orders", digit=digit)
    kept = Counter({row: n for row, n in state.rows.items() if row[0] % 7 != digit})
    if kept != state.rows:
        world.removed("orders", kept)
    return Applied(f"orders: rows with id % 7 = {digit} are deleted", "orders", "run")


@edit
def update_upstream(world: World) -> Applied | None:
    """Update rows of a table that others read."""
    if _upstream(world) is None:
        return None
    digit = world.rng.randrange(7)
    state = world.oracle.streams["orders"]
    world.sql("UPDATE {table} SET amount = amount + 1 WHERE id % 7 = {digit}", "orders", digit=digit)
    now: Rows = Counter()
    for (key, customer, amount, at), number in state.rows.items():
        now[key, customer, amount + (key % 7 == digit), at] += number
    if now != state.rows:
        world.removed("orders", now)
    return Applied(f"orders: rows with id % 7 = {digit} are updated", "orders", "run")


@edit
def restore_upstream(world: World) -> Applied | None:
    """RESTORE a table that others read to an earlier version."""
    known = world.history
    if not known:
        return None
    version = world.rng.choice(sorted(known))
    world.sql("RESTORE TABLE {table} TO VERSION AS OF {version}", "orders", version=version)
    if known[version] != world.oracle.streams["orders"].rows:
        world.removed("orders", Counter(known[version]))
    return Applied(f"orders: RESTORE to version {version}", "orders", "run")


@edit
def delete_customers(world: World) -> Applied | None:
    """Delete rows of a merge table, which its change data feed reports."""
    state = world.oracle.streams["customers"]
    if not state.rows:
        return None
    digit = world.rng.randrange(3)
    world.sql("DELETE FROM {table} WHERE id % 3 = {digit}", "customers", digit=digit)
    state.kept = {key: change for key, change in state.kept.items() if key % 3 != digit}
    state.rows = Counter({row: n for row, n in state.rows.items() if row[0] % 3 != digit})
    return Applied(f"customers: rows with id % 3 = {digit} are deleted", "customers", "run")


@edit
def optimize(world: World) -> Applied | None:
    """Compact a table that others read."""
    stream = world.rng.choice(["orders", "customers"])
    if world.version(stream) < 0:
        return None
    world.sql("OPTIMIZE {table}", stream)
    return Applied(f"{stream}: OPTIMIZE", stream, "run")


@edit
def vacuum(world: World) -> Applied | None:
    """Compact a table that others read, and remove the files that it no longer has."""
    stream = world.rng.choice(["orders", "customers"])
    if world.version(stream) < 0:
        return None
    world.sql("OPTIMIZE {table}", stream)
    world.sql("VACUUM {table} RETAIN 0 HOURS", stream)
    world.forget_history(stream)
    return Applied(f"{stream}: OPTIMIZE and VACUUM", stream, "run or be refused")
