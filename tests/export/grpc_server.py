"""The gRPC side of `server.py`, on the official messages and stubs."""

import concurrent.futures

import grpc
from google.protobuf import json_format
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests.export import server
from tests.export.c_api import INVALID_ARGUMENT, Error

_CODES = {code.value[0]: code for code in grpc.StatusCode}


def answering(function):
    """Turns an `Error` into a gRPC status."""

    def answer(self, request, context):
        try:
            return function(self, request)
        except Error as e:
            context.abort(_CODES[e.code], str(e)[:1024])

    return answer


def start(servable: server.Servable) -> int:
    """Serves on a free port, which it returns."""

    def find(spec):
        version = spec.version.value if spec.HasField("version") else None
        return servable.find(spec.name, version)

    class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
        @answering
        def Predict(self, request):
            version, model = find(request.model_spec)
            name = request.model_spec.signature_name or "serving_default"
            if name not in model.signatures:
                raise Error(INVALID_ARGUMENT, f"no signature {name[:80]!r}")
            inputs = {k: server.from_proto(v) for k, v in request.inputs.items()}
            response = predict_pb2.PredictResponse()
            response.model_spec.name = servable.name
            response.model_spec.version.value = version
            response.model_spec.signature_name = name
            for key, value in model.run(name, inputs).items():
                if not request.output_filter or key in request.output_filter:
                    response.outputs[key].CopyFrom(server.to_proto(value))
            return response

        @answering
        def GetModelMetadata(self, request):
            version, _ = find(request.model_spec)
            return json_format.ParseDict(
                servable.metadata(version),
                get_model_metadata_pb2.GetModelMetadataResponse(),
            )

    class Status(model_service_pb2_grpc.ModelServiceServicer):
        @answering
        def GetModelStatus(self, request):
            find(request.model_spec)
            version = request.model_spec.version.value or None
            return json_format.ParseDict(
                servable.status(version), get_model_status_pb2.GetModelStatusResponse()
            )

    pool = concurrent.futures.ThreadPoolExecutor(4)
    started = grpc.server(pool, options=[("grpc.max_receive_message_length", -1)])
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        Prediction(), started
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(Status(), started)
    port = started.add_insecure_port("127.0.0.1:0")
    started.start()
    _running.append(started)
    return port


_running = []  # a server that nothing refers to is stopped
