"""A cluster's life as events: from a real pod list, or made up in the same shape.

For demonstrations, tests and benchmarks: a log of one's own without a cluster at hand.

::

    pods.read(csv) ─┐
                    ├──▶ [Pod] ──events.of──▶ [Submission], in the order in which a cluster would send them
    generated.pods ─┘
"""
