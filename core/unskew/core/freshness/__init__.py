"""How fresh the counts are that place a batch: those of the batches before or its own, as would have been cheapest.

Begin with ``ways``: the candidates, and what each would have cost. ``plan_ahead`` is the machine of a streaming query.
"""
