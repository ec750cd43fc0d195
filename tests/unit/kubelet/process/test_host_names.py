"""The host name, /etc/hosts and /etc/resolv.conf of a pod."""

from pinnace.api.core_v1_pb2 import Pod
from pinnace.kubelet.runtime.process.host_names import ClusterDns, host_name, hosts_file, resolver_file
from tests.builders import make_pod

DNS = ClusterDns("10.96.0.10", "cluster.local")
MACHINE = "# written by hand\nsearch example.org\nnameserver 192.0.2.1\noptions edns0\n"


def member(subdomain: str = "etcd") -> Pod:
    pod = make_pod("etcd-0").container().new()
    pod.metadata.namespace = "store"
    pod.spec.hostname, pod.spec.subdomain, pod.spec.dnsPolicy = "etcd-0", subdomain, "ClusterFirst"
    return pod


def test_cluster_first_asks_the_cluster_and_then_the_machine() -> None:
    assert resolver_file(member(), DNS, MACHINE) == (
        "nameserver 10.96.0.10\nnameserver 192.0.2.1\n"
        "search store.svc.cluster.local svc.cluster.local cluster.local example.org\noptions ndots:5\n"
    )


def test_resolver_file_is_the_machines_without_a_cluster_dns_and_with_the_policy_default() -> None:
    assert resolver_file(member(), ClusterDns(), MACHINE) is None
    pod = member()
    pod.spec.dnsPolicy = "Default"
    assert resolver_file(pod, DNS, MACHINE) is None


def test_dns_config_adds_to_the_policy_and_replaces_options() -> None:
    pod = member()
    pod.spec.dnsConfig.nameservers.append("192.0.2.2")
    pod.spec.dnsConfig.searches.append("example.net")
    pod.spec.dnsConfig.options.add(name="ndots", value="2")
    pod.spec.dnsConfig.options.add(name="edns0")
    lines = (resolver_file(pod, DNS, "") or "").splitlines()
    assert lines == [
        "nameserver 10.96.0.10",
        "nameserver 192.0.2.2",
        "search store.svc.cluster.local svc.cluster.local cluster.local example.net",
        "options ndots:2 edns0",
    ]
    pod.spec.dnsPolicy = "None"
    assert resolver_file(pod, DNS, MACHINE) == "nameserver 192.0.2.2\nsearch example.net\noptions ndots:2 edns0\n"


def test_resolver_file_has_at_most_three_name_servers() -> None:
    machine = "".join(f"nameserver 192.0.2.{number}\n" for number in range(1, 5))
    text = resolver_file(member(), DNS, machine) or ""
    assert text.count("nameserver") == 3 and text.startswith("nameserver 10.96.0.10\n")


def test_hosts_file_has_the_full_name_of_a_pod_with_a_subdomain_and_the_aliases() -> None:
    pod = member()
    alias = pod.spec.hostAliases.add(ip="192.0.2.7")
    alias.hostnames.extend(("db", "db.example.org"))
    lines = hosts_file(pod, "127.0.1.2", "cluster.local").splitlines()
    assert "127.0.0.1\tlocalhost" in lines
    assert "127.0.1.2\tetcd-0.etcd.store.svc.cluster.local\tetcd-0" in lines
    assert lines[-1] == "192.0.2.7\tdb\tdb.example.org"


def test_host_name_is_the_full_name_only_on_request_and_with_a_subdomain() -> None:
    pod = member()
    assert host_name(pod, "cluster.local") == "etcd-0"
    pod.spec.setHostnameAsFQDN = True
    assert host_name(pod, "cluster.local") == "etcd-0.etcd.store.svc.cluster.local"
    pod.spec.subdomain = ""
    assert host_name(pod, "cluster.local") == "etcd-0"
