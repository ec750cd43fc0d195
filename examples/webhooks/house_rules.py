"""An admission webhook over gRPC: it adds the label `team` to pods, and refuses images with the tag `latest`.

python examples/webhooks/house_rules.py
pinnace-apiserver ... --admission-control-config-file examples/webhooks/house_rules.yaml
"""

import json
from concurrent.futures import ThreadPoolExecutor

import grpc

from pinnace.api.admission_pb2 import AdmissionRequest, AdmissionResponse, ReviewRequest, ReviewResponse
from pinnace.api.core_v1_pb2 import Pod


def judge(item: AdmissionRequest) -> AdmissionResponse:
    pod, answer = Pod.FromString(item.object), AdmissionResponse(uid=item.uid, allowed=True)
    latest = [container.image for container in pod.spec.containers if container.image.endswith(":latest")]
    if latest:
        answer.allowed, answer.status.message = False, f"{latest[0]}: use a tag other than latest"
    elif "team" not in pod.metadata.labels:
        answer.patch = json.dumps({"metadata": {"labels": {"team": item.namespace}}}).encode()
    return answer


def review(request: ReviewRequest, context: grpc.ServicerContext) -> ReviewResponse:
    return ReviewResponse(items=map(judge, request.items))


def serve(address: str) -> tuple[grpc.Server, int]:
    server = grpc.server(ThreadPoolExecutor(4))
    method = grpc.unary_unary_rpc_method_handler(review, ReviewRequest.FromString, ReviewResponse.SerializeToString)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("pinnace.admission.v1.Admission", {"Review": method})]
    )
    port = server.add_insecure_port(address)
    server.start()
    return server, port


if __name__ == "__main__":
    serve("127.0.0.1:9443")[0].wait_for_termination()
