"""What `gleeman bench` measures, and how. Prints nothing: `commands.bench` shows it.

Where the time of a line goes decides what a figure can tell. A line alone is bound by the latency of its
stages, one after the other: `rtf_1`, first audio. Lines that share a tick share each stage's start and each
weight that is read: whatever of the cost is per batch is divided by the rows, what is per sample is not. So
`tick16_cost_ratio` falls below 1 by the share that is per batch (on a GPU most of it, on two CPU cores
little), and rises above 1 by what padding wastes. Lanes, cancelling and memory have nothing to do with the
model; the first two are measured on stand-ins, so that no synthesis hides them.

    figures    the keys of the JSON, percentiles, ratios, reasons for what cannot be had (pure)
    machine    what it ran on
    script     the lines that are spoken
    served     what a client of a daemon sees: ticks, first audio, load, memory
    lanes      what is left of a line's way without text and synthesis, and how soon it is silent
    stages     where the time goes inside the pipeline, in this process
"""
