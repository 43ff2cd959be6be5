"""The same weights, phonemes, voice and thread count through three engines, in one run (`make bench-peers`).

    gleeman       ours, as the daemon calls it: one row through `Pipeline.run`
    kokoro        `KModel` of the PyPI package `kokoro`, the reference in PyTorch, eager, float32
    kokoro-onnx   `Kokoro.create` of the PyPI package `kokoro-onnx` on the int8 export, ONNX Runtime

Each engine has a process of its own for each thread count, so that no thread pool sees another's; one runs
at a time while the rest sleep. The order is shuffled in each round, so that a machine that warms up or is
busy for a while does so to all. Compared are medians of real-time factors: seconds of work a second of the
speech that came out, lower is better.

In the peers' favour: `KModel` gets its weight norm folded, which the package computes anew for each line, and
`kokoro-onnx` does not trim. In ours: of the silence around a sentence we render a part and add zeros, so
`seconds` and `speech_s` of each engine stand beside the factors. The same for all: loading and text to
phonemes are not counted. `best_N` is the quickest run on N threads, for machines that are busy otherwise.

    plan      order, medians, ratios, the JSON (pure)
    engines   the three, each with what it takes to load it
    worker    one engine in one process, run on demand over its pipes
    __main__  the whole run, the table, the last line
"""
