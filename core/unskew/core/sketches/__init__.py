"""Mergeable summaries of a key stream in bounded memory."""
