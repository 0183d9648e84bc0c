"""The verbs over gRPC: the server, the encoding of messages and errors, and KEDA's external scaler."""
