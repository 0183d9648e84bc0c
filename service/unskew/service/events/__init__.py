"""What happens in the engine, as values, and who listens: metrics, traces, and the history of a stream.

Begin with ``events``. Listeners are quick and never raise.
"""
