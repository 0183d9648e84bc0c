"""What happens in the engine, as values, and the observers of it: metrics, the history of a stream, spans of traces.

Begin with ``events``. An observer is called on the loop: it is quick and never raises.
"""
