"""The requests and the time of decisions and of `status` over a lake on a slow object store."""
