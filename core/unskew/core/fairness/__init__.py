"""Who is served next, and who has to wait, where many share one service: ``fair_queue`` orders work by identity,
``token_bucket`` counts calls a second. Both are passive machines; the service acts by them."""
