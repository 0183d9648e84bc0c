"""Consistent hashing, plain (``ch``) and with bounded loads (``chbl``), over one ``circle`` of points."""
