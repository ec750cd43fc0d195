"""How the containers of a pod find names: their host name, /etc/hosts and /etc/resolv.conf. Pure.

    dnsPolicy                   name servers                          search domains
    ClusterFirst (default)      the cluster's, then the machine's     NAMESPACE.svc.DOMAIN, svc.DOMAIN, DOMAIN, the machine's
    ClusterFirstWithHostNet     as ClusterFirst
    Default                     the machine's                         the machine's
    None                        none                                  none

`dnsConfig` adds to all of them. The cluster's DNS server refuses names of other domains, so resolvers ask the machine's servers
next. In Kubernetes, the cluster's server forwards them.

Source: pkg/kubelet/network/dns/dns.go and pkg/kubelet/kubelet_pods.go (nodeHostsFileContent, managedHostsFileContent) of
Kubernetes 1.36.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pinnace.api.core_v1_pb2 import Pod

HOSTS, RESOLVER = "/etc/hosts", "/etc/resolv.conf"
MAX_SERVERS = 3
"""Resolvers use the first three name servers (resolv.conf(5))."""
MAX_SEARCH_DOMAINS = 32
MAX_HOST_NAME = 63
"""Maximum length of a host name, as in Kubernetes."""
_MACHINE = """\
# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
"""


class ClusterDns(NamedTuple):
    """The DNS server of the cluster, which listens on port 53. Empty `server`: there is none."""

    server: str = ""
    domain: str = "cluster.local"


NO_DNS = ClusterDns()


class _Resolver(NamedTuple):
    """The content of a resolv.conf."""

    servers: Sequence[str] = ()
    searches: Sequence[str] = ()
    options: Sequence[str] = ()


def host_name(pod: Pod, domain: str) -> str:
    """Return what `hostname` prints in the containers."""
    if pod.spec.setHostnameAsFQDN and (full := _full_name(pod, domain)):
        return full
    return short_host_name(pod)


def hosts_file(pod: Pod, address: str, domain: str) -> str:
    """Return the content of /etc/hosts. `address`: of the pod."""
    names = [name for name in (_full_name(pod, domain), short_host_name(pod)) if name]
    lines = ["\t".join((address, *names))]
    if pod.spec.hostAliases:
        lines += ["", "# Entries added by HostAliases."]
        lines += ["\t".join((alias.ip, *alias.hostnames)) for alias in pod.spec.hostAliases]
    return _MACHINE + "\n".join(lines) + "\n"


def resolver_file(pod: Pod, dns: ClusterDns, machine: str) -> str | None:
    """Return the content of /etc/resolv.conf, or None if it is the machine's. `machine`: the content of the machine's."""
    policy, given = pod.spec.dnsPolicy, pod.spec.dnsConfig
    host = _parse_resolver(machine)
    if policy == "None":
        base = _Resolver()
    elif policy == "Default" or not dns.server:
        base = host
    else:
        searches = [f"{pod.metadata.namespace}.svc.{dns.domain}", f"svc.{dns.domain}", dns.domain, *host.searches]
        base = _Resolver([dns.server, *host.servers], searches, ["ndots:5"])
    if base is host and not pod.spec.HasField("dnsConfig"):
        return None
    options = {option.partition(":")[0]: option for option in base.options}
    for option in given.options:
        options[option.name] = f"{option.name}:{option.value}" if option.value else option.name
    return _format_resolver(
        _unique([*base.servers, *given.nameservers], MAX_SERVERS),
        _unique([*base.searches, *given.searches], MAX_SEARCH_DOMAINS),
        list(options.values()),
    )


def short_host_name(pod: Pod) -> str:
    """Return the name of the pod or its `hostname`, truncated to the length of a host name."""
    return (pod.spec.hostname or pod.metadata.name)[:MAX_HOST_NAME].rstrip("-.")


def _full_name(pod: Pod, domain: str) -> str:
    """Return the name of the pod in the domain of its `subdomain`; "" without one."""
    if not pod.spec.subdomain:
        return ""
    return f"{short_host_name(pod)}.{pod.spec.subdomain}.{pod.metadata.namespace}.svc.{domain}"


def _parse_resolver(text: str) -> _Resolver:
    servers, searches, options = list[str](), list[str](), list[str]()
    for line in text.splitlines():
        match line.split():
            case ["nameserver", server, *_]:
                servers.append(server)
            case ["search" | "domain", *words]:
                searches = words  # the last line wins
            case ["options", *words]:
                options += words
    return _Resolver(servers, searches, options)


def _format_resolver(servers: Iterable[str], searches: Sequence[str], options: Sequence[str]) -> str:
    lines = [f"nameserver {server}" for server in servers]
    lines += [f"search {' '.join(searches)}"] * bool(searches) + [f"options {' '.join(options)}"] * bool(options)
    return "".join(f"{line}\n" for line in lines)


def _unique(values: Iterable[str], limit: int) -> list[str]:
    return list(dict.fromkeys(values))[:limit]
