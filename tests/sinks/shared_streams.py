"""Two streams into one table."""

from tidemill import DeltaAppend, Feed, Json, Pipeline

VIEW = "page STRING, n BIGINT"


def declared(rules=None):
    """A stream with a table, one that appends to it, and a reader of the table."""
    shop = Pipeline("shop")

    web = Feed("web", format=Json(VIEW), max_files_per_batch=1)
    app = Feed("app", format=Json(VIEW), rules=rules or {}, max_files_per_batch=1)

    @shop.stream(source=web, sink=DeltaAppend(), backfill_by="page")
    def views(events):
        return events

    @shop.stream(source=app, sink=DeltaAppend(into=views))
    def app_views(events):
        return events

    @shop.stream(source=views, sink=DeltaAppend())
    def copy(views):
        return views

    return views, app_views, copy
