"""Settings of the whole suite."""

from __future__ import annotations

import os

from hypothesis import settings

# CI judges a change: it runs the same examples every time, so that a red run is the change's own doing. Everywhere
# else Hypothesis looks for new ones.
settings.register_profile("ci", derandomize=True, print_blob=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
