"""The examples in the docstrings of ``unskew.client`` give what they show, against the real service."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from unskew import client

MODULES = [module.name for module in pkgutil.iter_modules(client.__path__, "unskew.client.")]


@pytest.mark.parametrize("name", MODULES)
def test_every_example_of_a_module_is_true(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_every_exported_class_but_the_kinds_of_an_error_has_an_example() -> None:
    """The kinds of ``ServiceCallError`` are made in one way, which that class shows."""
    kinds = {kind.__name__ for kind in client.ServiceCallError.__subclasses__()} | {"ClientClosedError", "Breaker"}
    assert [
        name for name in client.__all__ if name not in kinds and ">>>" not in (getattr(client, name).__doc__ or "")
    ] == []
