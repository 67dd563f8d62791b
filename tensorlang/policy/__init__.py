"""What to write when nobody wrote a schedule: for which equations, on which machine, which directives.

Nothing here is trusted: what comes out is a `tensorlang.schedule.schedule.Schedule`, and is proven like one that a person wrote.
"""
