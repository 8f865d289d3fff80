"""The pure half of the gateway: what is true and what is decided, as values and functions of values.

No clock, no randomness, no logging, no I/O; times, draws and bytes are passed in. Names are imported from the module that they are at home in.

Theory of operation. A caller's request becomes an `ingress` snapshot: its bytes, and the few members that are read. `recovery` says which target is
asked (`plan`), `rebuild` and `patches` make the body for it from the snapshot, `binding` puts the target's model in. What comes back is read by `reader`: `sse` splits
bytes into blocks, `openai` turns a block into a frame with its events, `completeness` knows when the answer is whole, `clocks` for how long it may take.
`judging` holds the frames as `evidence`: `mending` repairs them losslessly and takes the closing facts out, `filters` judge, `hold` says how long they wait. What may go passes
the `commit` boundary and becomes the caller's bytes in a `framing` (or, for a caller without a stream, in a `fold`). A `failure` is one value; `envelope` says what a caller is
told of it; `observe` what an operator is.

    bytes -> sse -> openai -> completeness -> mending -> filters -> hold -> commit -> framing -> bytes
               reader                           judging                    (the sink)

`config*` is the schema of the configuration and its checks; `budget` the ledger of memory; `health` and `retry_budget` what outlives an exchange.
"""
