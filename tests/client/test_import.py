"""What the client costs whoever carries it: importing it, and routing through it instead of the bare router."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

import numpy as np

from tests.client.service_in_test import free_port
from unskew.client import Agent
from unskew.core.rounds.agent import Agent as Machine

# Processor time over importing numpy and grpc: what others do on the machine is not counted. benchmarks/client.py has
# the figures: 103 ms where this was written.
LIMIT_MS = 150


def in_fresh_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_client_takes_little_time() -> None:
    """All that its verbs need, not only its name. One of some: a busy machine can only add."""
    code = (
        "import time, numpy, grpc\nbegan = time.process_time()\nfrom unskew.client import Client\n"
        "print(1000 * (time.process_time() - began))"
    )
    assert any(float(in_fresh_python(code)) < LIMIT_MS for _ in range(10))


def test_what_a_task_needs_loads_no_compiler_and_no_server() -> None:
    """Only an agent that learns loads the routers' kernels, and numba where it is installed."""
    code = (
        "import json, sys\nimport unskew.client.testing\n"
        "from unskew.client import Client, PlanAgent, Reporter\n"
        "names = {name.split('.')[0] for name in sys.modules}\nprint(json.dumps(sorted(names)))"
    )
    loaded = set(json.loads(in_fresh_python(code)))
    assert {"unskew", "grpc"} <= loaded
    assert loaded & {"numba", "fastapi", "uvicorn", "redis", "pyspark", "pandas"} == set()


def test_an_agent_routes_without_numba() -> None:
    """The same workers as with it."""
    code = (
        "import sys\n{}import numpy as np\nfrom unskew.client import Agent\n"
        f"agent = Agent('clicks', '127.0.0.1:{free_port()}', workers=4, name='ann')\n"
        "print(agent.route(np.arange(500, dtype=np.uint64) % np.uint64(9)).tolist())\nagent.close(0.0)"
    )
    plain = in_fresh_python(code.format("sys.modules['numba'] = None\n"))
    assert plain == in_fresh_python(code.format(""))


def test_routing_by_an_agent_costs_hardly_more_than_the_bare_router() -> None:
    """Call by call in turns; the benchmark has the figures (within 10 %), this only sees a driver gone wrong."""
    hashes = np.random.default_rng(1).zipf(1.3, 10_000).astype(np.uint64)
    with Agent("clicks", f"127.0.0.1:{free_port()}", workers=16, dsync=3600.0) as agent:
        bare = Machine(agent._settings).router
        spent: dict[str, list[float]] = {"bare": [], "agent": []}
        for _ in range(60):
            for name, act in (("bare", bare.route), ("agent", agent.route)):
                began = time.process_time()
                act(hashes)
                spent[name].append(time.process_time() - began)
        agent.close(0.0)
    assert statistics.median(spent["agent"]) < 1.3 * statistics.median(spent["bare"])
