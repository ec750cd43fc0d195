"""What a command imports, which is most of the time that it takes."""

import asyncio
import os
import sys

from pinnace.client.client import Client
from tests.builders import make_pod
from tests.integration.processes import NOWHERE

PROGRAM = "import sys; from pinnace.cli.main import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
OF_OTHERS = {"cryptography", "numpy", "pinnace.bench", "pinnace.chaos", "pinnace.cluster", "rich"}
OF_OTHER_FORMS = {"pinnace.api.codec", "pinnace.cli.jsonpath", "pinnace.client.informer", "yaml"}


async def test_a_table_needs_neither_other_verbs_nor_other_forms(server: str, client: Client) -> None:
    """YAML is read of a configuration, too, and here is none."""
    await client.pods.create(make_pod("a").req(cpu="1").new())
    environment = {**os.environ, "PINNACE_SERVER": server, "KUBECONFIG": str(NOWHERE)}
    command = (sys.executable, "-c", PROGRAM, "get", "pods")
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-1, env=environment)
    out, err = await process.communicate()
    loaded = set(err.decode().split())
    assert out.startswith(b"NAME ") and "grpc" in loaded and not loaded & (OF_OTHERS | OF_OTHER_FORMS)
