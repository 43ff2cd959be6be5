"""The Python client: `from gleeman.client import Client`.

    client.py    what the game calls
    line.py      what the game does with a line: hear, cancel, pause
    life.py      what happens to a line until its one end
    tables.py    what a client knows, under its one lock
    session.py   one conversation with one daemon: its mapping
    link.py      the thread that owns the socket
    find.py      finding a daemon, starting one

Imports no torch and starts nothing until `Client.connect`.
"""

from .client import Client
from .line import Line

__all__ = ["Client", "Line"]
