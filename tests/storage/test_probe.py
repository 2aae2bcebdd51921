"""A store is probed before it is used, and what a store lacks is named."""

from uuid import uuid4

import pytest

from tests.servers.faulty_proxy import faulty_proxy
from tests.servers.object_store import object_store as object_server
from tests.support.raising import raises
from tidemill.storage import object_store, probe
from tidemill.storage.object_store import ObjectStore
from tidemill.storage.probe import faults_of, require_probed
from tidemill.storage.store import ChangedError


def test_each_kind_of_store_passes_and_keeps_nothing(store):
    assert faults_of(store) == []
    assert list(store.walk()) == []


class Careless:
    """A store that ignores conditions, as some with the interface of S3 do."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    def create(self, key, data):
        return self._store.replace(key, data)

    def replace(self, key, data, **_):
        return self._store.replace(key, data)


def test_a_store_that_ignores_conditions_is_named(store):
    faults = faults_of(Careless(store))

    assert any("If-None-Match is ignored" in fault for fault in faults)
    assert any("If-Match is ignored" in fault for fault in faults)


@pytest.mark.slow
def test_a_lake_is_probed_once_and_before_anything_is_written(bucket, monkeypatch):
    store = bucket.below(uuid4().hex)
    monkeypatch.setattr(ObjectStore, "create", lambda self, key, data: self.replace(key, data))
    with raises("store-lacks-writes", "If-None-Match is ignored"):
        require_probed(store)
    assert list(store.walk()) == []
    monkeypatch.undo()

    require_probed(store)
    monkeypatch.setattr(ObjectStore, "create", lambda *_: pytest.fail("probed again"))
    require_probed(store)
    probe._probed.clear()  # as in another process
    require_probed(store)


def test_a_folder_is_not_probed(tmp_path):
    from tidemill.storage.local_store import LocalStore

    require_probed(LocalStore(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_bucket_that_does_not_exist_is_named(bucket):
    missing = ObjectStore("another-bucket", settings=bucket.settings)
    for use in (missing.walk, missing.list, lambda: missing.read("a"), lambda: missing.replace("a", b"")):
        with raises("store-missing", "another-bucket"):
            use()


def test_a_store_that_does_not_answer_is_worth_a_retry(monkeypatch):
    monkeypatch.setattr(object_store, "_RETRIES", 0)
    settings = object_store.S3Settings(
        endpoint="http://127.0.0.1:1",
        region="us-east-1",
        access_key_id="a",
        secret_access_key="hidden",  # noqa: S106
    )
    store = ObjectStore("lake", settings=settings)
    for use in (store.walk, lambda: store.read("a"), lambda: store.replace("a", b"", unchanged="1")):
        with raises("store-unavailable", "s3a://lake") as raised:
            use()
        assert raised.value.transient
        assert "hidden" not in str(raised.value)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "answer",
    [
        (403, "AccessDenied", "Access Denied"),
        (403, "SignatureDoesNotMatch", "The signature does not match"),
        (400, "ExpiredToken", "The provided token has expired."),
        (403, "InvalidAccessKeyId", "The key does not exist."),
        (401, "Unauthorized", "Who are you?"),
    ],
    ids=lambda answer: answer[1],
)
def test_wrong_or_expired_credentials_are_one_line(answer, refusing):
    store = refusing(*answer)
    for use in (store.walk, lambda: store.read("a"), lambda: store.create("a", b"")):
        with raises("store-access-denied", answer[2].rstrip(".")) as raised:
            use()
        assert "\n" not in str(raised.value)
        assert "AWS_ACCESS_KEY_ID" in raised.value.fix


@pytest.mark.slow
@pytest.mark.parametrize("conditional", [False, True])
def test_a_write_whose_answer_was_lost_is_recognized_as_its_own(conditional):
    with object_server() as server, faulty_proxy(server) as proxy:
        settings = object_store.S3Settings(
            endpoint=proxy.server.endpoint,
            region=server.region,
            access_key_id=server.access_key,
            secret_access_key=server.secret_key,
        )
        store = ObjectStore(server.bucket, settings=settings)
        version = store.create("other", b"0") if conditional else ""
        proxy.faults += ["lose"]
        if conditional:
            version = store.replace("other", b"1", unchanged=version)
            assert (store.read("other"), proxy.faults) == (b"1", [])
            store.replace("other", b"2", unchanged=version)
        else:
            version = store.create("lease", b"mine")
            assert (store.read("lease"), proxy.faults) == (b"mine", [])
            store.replace("lease", b"still mine", unchanged=version)


def test_a_change_that_another_process_made_is_no_refusal(refusing):
    with pytest.raises(ChangedError):
        refusing(412, "PreconditionFailed", "One condition did not hold").replace("a", b"", unchanged="1")


@pytest.fixture
def refusing():
    """Return a store whose server answers each request with an error: a real one cannot expire a token on demand."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    servers = []

    def store_that_answers(status, code, message):
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()

        class Refuse(BaseHTTPRequestHandler):
            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(404 if status == 412 and self.command == "GET" else status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_PUT = do_POST = do_GET  # noqa: N815 - names of http.server

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Refuse)
        servers.append(server)
        Thread(target=server.serve_forever, daemon=True).start()
        settings = object_store.S3Settings(
            endpoint=f"http://127.0.0.1:{server.server_port}",
            region="us-east-1",
            access_key_id="a",
            secret_access_key="b",  # noqa: S106 - of nothing
        )
        return ObjectStore("lake", settings=settings)

    yield store_that_answers
    for server in servers:
        server.shutdown()
        server.server_close()
