"""``coalloc dashboard``: a web page and REST interface of this site."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec

from coalloc.cli.command import Command, CommandError, configuration
from coalloc.option_text import add_options
from coalloc.runtime.texts import to_install

NEEDS = ("starlette", "uvicorn")


OPTIONS = """
--address HOST:PORT =   where to listen, instead of the file's
--token-file FILE =     whose token all who look must show
"""


def _dashboard(args: argparse.Namespace) -> int:
    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"dashboard: {' and '.join(missing)} not installed; {to_install('dashboard')}"
        )
    from coalloc.dashboard.access import settings_of
    from coalloc.dashboard.server import run

    settings = settings_of(configuration(args).dashboard, args.address, args.token_file)
    return run(settings, args.endpoint, args.config, args.timeout)


COMMANDS: Mapping[str, Command] = {
    "dashboard": Command(
        doc="serve a web page of what runs, waits and is planned",
        about="Serve a read-only web page and REST interface of what runs, waits and is planned,\n"
        "until it is interrupted. It listens on this machine alone, unless the configuration has\n"
        "a token or a reverse proxy's user header ([dashboard]).",
        example="coalloc dashboard\n  coalloc dashboard --address 127.0.0.1:9000",
        add=partial(add_options, text=OPTIONS),
        run=_dashboard,
    )
}
