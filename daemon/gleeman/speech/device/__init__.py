"""What a GPU needs that a CPU does not: sizes that are rounded, graphs of kernels, a stream, pinned memory, a
cap on memory. Knows no model: kokoro uses it.

    buckets    which padded sizes there are, and what is captured, replayed or run plainly: arithmetic
    graphs     one function at one size as a graph of kernels, by that policy
    staging    pinned memory that a batch's samples are copied into, once
    memory     the cap's arithmetic; what errors mean that memory was short
    driver     how much of a device is in use, from the driver's own library
    cuda       the device itself: all of torch.cuda that is called stands there
"""
