"""Settings of the whole suite."""

from __future__ import annotations

import os

from hypothesis import settings

from tests import jvm

# CI judges a change: it runs the same examples every time, so that a red run is the change's own doing. Everywhere
# else Hypothesis looks for new ones.
# Without a deadline for an example: on a shared machine one that is stopped for a moment is no wrong answer.
settings.register_profile("everywhere", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "everywhere")

jvm.use()
