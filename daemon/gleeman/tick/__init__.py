"""The tick: which clauses run together, and the thread that runs them."""
