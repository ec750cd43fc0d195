"""One-time links to the timeline of a local cluster, and the browser that opens them."""

import sys
import webbrowser
from contextlib import suppress

from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cluster import certificates
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.processes import find_running
from pinnace.cluster.spec import GATEWAY, data_dir_flag, pki_folder
from pinnace.pki.folder import ADMIN
from pinnace.timeline.link import LinkError, request_link


def local_link(cluster: Cluster) -> str:
    """Return a link for the administrator. Blocks for up to some seconds. Raises Failure."""
    folder = cluster.spec.data_dir
    gateways = cluster.state.processes_of(GATEWAY)
    if not gateways:
        hint = f"`pinnace up{data_dir_flag(folder)} --fresh --gateways 1` makes a cluster with one"
        raise Failure(f"the cluster in {folder} has no gateway", hint=hint, code=ExitCode.NOT_FOUND)
    alive = [gateway for gateway in gateways if find_running(gateway)]
    if not alive:
        raise Failure("no gateway runs", hint="`pinnace start` starts stopped processes", code=ExitCode.UNAVAILABLE)
    try:
        return request_link(alive[0].plan.address, certificates.component_files(pki_folder(folder), ADMIN))
    except (LinkError, OSError) as error:
        raise Failure(str(error), hint="`pinnace doctor` looks for the cause", code=ExitCode.UNAVAILABLE) from None


def open_browser(url: str, wanted: bool | None) -> None:
    """Open the URL in a browser, if there is one. `wanted` None: only in a terminal."""
    if sys.stdout.isatty() if wanted is None else wanted:
        with suppress(webbrowser.Error):
            webbrowser.open(url)
