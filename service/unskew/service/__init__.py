"""The partitioning service: gRPC and HTTP, stores, round driver, settings, metrics, web page."""
