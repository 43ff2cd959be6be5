"""Gleeman gives game characters a voice: a local daemon that speaks NPC lines into shared memory.

Games talk to the daemon through `gleeman.client` (or the C library in `bindings/c`);
`gleeman serve` starts it. Importing this package imports nothing heavy.
"""

__version__ = "0.1.0"
