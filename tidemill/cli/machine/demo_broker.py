"""`tidemill demo broker`: the development Kafka broker, until Ctrl-C."""

import sys
from contextlib import suppress

from tidemill.cli.shared.output import output_console, print_json
from tidemill.cli.shared.target_flags import AsJson


def broker(*, as_json: AsJson = False) -> None:
    """Start a Kafka broker on this machine for development, and stay until Ctrl-C. Its topics end with it.

    Exit status: 0 after Ctrl-C, 1 if the broker does not start or ends by itself.
    """
    from tidemill.engines.dev.broker import Broker

    with suppress(KeyboardInterrupt), Broker() as running:
        if as_json:
            print_json(bootstrap=running.bootstrap)
            sys.stdout.flush()  # a program reads the address while the broker runs
        else:
            _show(running.bootstrap)
        running.wait()


def _show(bootstrap: str) -> None:
    output_console().print(
        f"A Kafka broker listens on [bold]{bootstrap}[/] (this machine only, no credentials). Ctrl-C stops it; "
        "its topics end with it.\n\n"
        "In another terminal, with a lake for this broker alone:\n"
        f"  tidemill demo generate --kafka {bootstrap}\n"
        f"  tidemill run ads --kafka {bootstrap} --lake .tidemill/broker-lake",
        soft_wrap=True,
    )
