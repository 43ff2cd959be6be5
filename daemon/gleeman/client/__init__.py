"""The Python client: `from gleeman.client import Client`.

    client.py    what the game calls
    line.py      one line: samples, events, its end
    tables.py    what a client knows, under its one lock
    session.py   one conversation with one daemon: its mapping
    link.py      the thread that owns the socket
    start.py     starting a daemon

Imports no torch and starts nothing until `Client.connect`.
"""

from .client import Client
from .line import Line

__all__ = ["Client", "Line"]
