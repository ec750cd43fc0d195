"""By what kubelets and API servers know each other when it is the API server that calls, for logs, exec and what is used.

A fleet's certificate is good for one name as a server's, the same for all fleets: which kubelet it is, the address says that
the nodes publish, and only their own fleet writes that. It is good for no name of an API server's, so that nobody takes a
kubelet for one. What an API server shows is good for nothing else: its user has no rights in the API.
"""

from pinnace.pki.authority import Subject

SERVER_NAME = "kubelet.pinnace"
CLIENT = Subject("kube-apiserver-kubelet-client")
