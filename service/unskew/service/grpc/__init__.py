"""The verbs over gRPC: ``server`` has the handlers, ``codec`` what each call passes, ``keda`` KEDA's scaler."""
