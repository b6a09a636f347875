"""Measures libdipc beside its peers, in turns, on this machine: `python -m bench --help`."""
