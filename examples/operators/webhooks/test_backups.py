"""A suite as kubebuilder makes it: the webhooks run in the process of the tests, and the API server calls them."""

import base64
import subprocess

import backups
import pytest
from kubernetes import client

SPEC = {"x-kubernetes-preserve-unknown-fields": True, "type": "object"}
SCHEMA = {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": SPEC}}}
RULE = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["backups"]}
OPERATOR_RULES = [
    {"apiGroups": ["example.com"], "resources": ["backups", "backups/status"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "deletecollection"]},
]


@pytest.fixture(scope="session")
def hooks(tmp_path_factory):
    """The URL of the webhooks, and the certificate of their authority."""
    folder = tmp_path_factory.mktemp("certificates")
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=webhooks"
    names = "-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(["openssl", "req", *options.split(), *names.split()], cwd=folder, check=True, capture_output=True)
    server = backups.serve_webhooks(folder / "cert.pem", folder / "key.pem")
    yield f"https://127.0.0.1:{server.server_port}", base64.b64encode((folder / "cert.pem").read_bytes()).decode()
    server.shutdown()


@pytest.fixture(scope="session")
def installed(pinnace_cluster, hooks):
    """The definition and the configurations of the webhooks."""
    url, authority = hooks

    def webhook(path):
        return {
            "name": f"{path}.example.com", "clientConfig": {"url": f"{url}/{path}", "caBundle": authority},
            "rules": [RULE], "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }  # fmt: skip

    def version(name, storage):
        return {"name": name, "served": True, "storage": storage, "schema": SCHEMA, "subresources": {"status": {}}}

    conversion = {"clientConfig": {"url": f"{url}/convert", "caBundle": authority}, "conversionReviewVersions": ["v1"]}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "backups.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Backup", "plural": "backups"},
            "versions": [version("v1", True), version("v2", False)],
            "conversion": {"strategy": "Webhook", "webhook": conversion},
        },
    }  # fmt: skip
    registration = "admissionregistration.k8s.io/v1"
    for kind, path in (("MutatingWebhookConfiguration", "default"), ("ValidatingWebhookConfiguration", "validate")):
        configuration = {"apiVersion": registration, "kind": kind, "metadata": {"name": "backups"}}
        pinnace_cluster.apply(configuration | {"webhooks": [webhook(path)]})
    pinnace_cluster.apply(definition)


@pytest.fixture
def operator(pinnace_cluster, namespace, installed):
    """A client that acts as the operator's service account."""
    place = {"name": "operator", "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", **place}
    pinnace_cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": place, "rules": OPERATOR_RULES},
        {
            "apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": place, "subjects": [subject],
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "operator"},
        },
    )  # fmt: skip
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/operator"
    token = pinnace_cluster.request("POST", f"{account}/token", {"spec": {"expirationSeconds": 600}})["status"]["token"]
    configuration = client.Configuration(host=pinnace_cluster.server)
    configuration.ssl_ca_cert = str(pinnace_cluster.ca)
    configuration.api_key = {"authorization": f"Bearer {token}"}
    with client.ApiClient(configuration) as api:
        yield api


@pytest.fixture
def api(pinnace_cluster, namespace, installed):
    """Calls the API about Backups, and returns objects."""

    def call(method, version="v1", name="", body=None, **options):
        path = f"/apis/example.com/{version}/namespaces/{namespace}/backups{'/' + name if name else ''}"
        return pinnace_cluster.request(method, path, body, **options)

    pinnace_cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "1"}}, namespace=namespace
    )
    return call


def backup(**spec):
    body = {"apiVersion": "example.com/v1", "kind": "Backup", "metadata": {"name": "daily"}}
    return body | {"spec": {"configMap": "settings"} | spec}


def config_maps(cluster, namespace):
    items = cluster.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"]
    return {item["metadata"]["name"]: item for item in items}


def test_webhook_sets_default(api):
    assert api("POST", body=backup())["spec"]["keep"] == 3


def test_webhook_refuses_change(api):
    api("POST", body=backup(keep=5))
    with pytest.raises(Exception, match=r'admission webhook "validate.example.com" denied the request: spec.keep must not be'):
        api("PATCH", name="daily", body={"spec": {"keep": 4}}, content_type="application/merge-patch+json")


def test_versions_are_converted(api):
    api("POST", body=backup())
    assert api("GET", "v2", "daily")["spec"] == {"keep": 3, "source": {"configMap": "settings"}}
    (listed,) = api("GET", "v2")["items"]
    assert listed["spec"]["source"] == {"configMap": "settings"}


def test_controller_reports_status_and_owns_its_copy(pinnace_cluster, namespace, operator, api):
    created = api("POST", body=backup())
    backups.reconcile(operator, namespace, "daily")
    assert api("GET", name="daily")["status"] == {"copy": "daily-copy", "observedGeneration": 1}
    copy = config_maps(pinnace_cluster, namespace)["daily-copy"]
    assert copy["data"] == {"a": "1"}
    assert [owner["uid"] for owner in copy["metadata"]["ownerReferences"]] == [created["metadata"]["uid"]]


def test_finalizer_cleans_up_and_owned_objects_go_with_their_owner(pinnace_cluster, namespace, operator, api):
    api("POST", body=backup())
    backups.reconcile(operator, namespace, "daily")
    api("DELETE", name="daily")
    assert "deletionTimestamp" in api("GET", name="daily")["metadata"]
    backups.reconcile(operator, namespace, "daily")
    assert api("GET")["items"] == []
    pinnace_cluster.wait(lambda: not {"daily-copy", "daily-pin"} & config_maps(pinnace_cluster, namespace).keys())


def test_token_permits_what_its_role_permits(namespace, operator):
    with pytest.raises(client.ApiException) as refused:
        client.CoreV1Api(operator).list_namespaced_secret(namespace)
    user = f"system:serviceaccount:{namespace}:operator"
    assert refused.value.status == 403 and f'User \\"{user}\\" cannot list resource' in refused.value.body
