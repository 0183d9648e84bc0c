"""What each verb does: streams, reports of batches, planning, rounds of learning, watches, advice on tasks.

Begin with ``engine``, which puts the parts together. Each part is one module; decisions are made by ``unskew.core``.
Whatever must survive a restart is kept by ``unskew.service.stores``.
"""
