"""Protobuf messages to core values and back: the only place that translates."""
