"""What `gleeman bench` measures, and how. Prints nothing: `commands.bench` shows it.

Where the time of a line goes decides what a figure can tell. A line alone is bound by the latency of its
stages, one after the other: `rtf_1`, first audio. Lines that share a tick share each stage's start and each
weight that is read: whatever of the cost is per batch is divided by the rows, what is per sample is not. So
`tick16_cost_ratio` falls below 1 by the share that is per batch (on a GPU most of it, on two CPU cores
little), and rises above 1 by what padding wastes. Lanes, cancelling and memory have nothing to do with the
model; the first two are measured on stand-ins, so that no synthesis hides them.

`first_audio_16_p95_ratio` asks how much later the last of sixteen lines of one tick begins than a line alone.
On a GPU they share a batch, and it can be near 1. On a CPU a batch is held to 100 ms, which one clause fills,
so clauses go one after the other, and with nothing lost the last line waits for fifteen. It waits for more
than their first clauses: a line that has begun and would soon fall silent goes before one that has not, so
between them come the second clauses of the lines before. `SHORT` is a first clause of one word and a second
of three, about as long again and a half: 15 x 2.3 + 1 = 36 is what the work itself asks for, whoever orders
it so, and 16 what it would be if lines that speak were left to stutter. With clauses of like length, see
`cost_ratio`.

    figures    the keys of the JSON, percentiles, ratios, reasons for what cannot be had (pure)
    machine    what it ran on
    script     the lines that are spoken
    served     what a client of a daemon sees: ticks, first audio, load, memory
    lanes      what is left of a line's way without text and synthesis, and how soon it is silent
    stages     where the time goes inside the pipeline, in this process
"""
