"""Queries whose drivers, handlers and services die, each batch of which must go by one plan; and their jobs."""
