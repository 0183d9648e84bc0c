"""What each verb does: streams, histograms of batches, planning, rounds of learning, watches, advice on tasks.

``engine`` puts the parts together; each part is one module and decides by ``unskew.core``. Everything that must
survive goes through ``unskew.service.stores``.
"""
