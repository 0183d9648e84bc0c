"""How fresh the counts are that place a batch: those of the batches before or its own, as would have been cheapest.

Begin with ``plan_ahead``: it decides what a query's next batch is bound to. ``ways`` has the candidates and what each
would have cost, ``way_scores`` picks the cheapest, ``batch_price`` says what that is in seconds.
"""
