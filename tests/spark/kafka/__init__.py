"""A real Kafka broker, and a streaming job on it that is killed in the middle of a batch and started again."""
