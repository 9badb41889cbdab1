"""The service of examples/service under load, beside the same service on ONNX Runtime."""
