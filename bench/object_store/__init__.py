"""The requests and the time of decisions and of `status` over a lake on an object store, whose requests take a while."""
