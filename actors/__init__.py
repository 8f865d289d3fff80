"""The actors of one exchange, on trio. Each file is one actor, or one thing that they share.

| actor | reads | writes | owns | ends when |
|---|---|---|---|---|
| ingress | the caller: its body, then its disconnect | `intake`, once | nothing: it fills the exchange's snapshot | the exchange ends |
| attempt runner | `orders` | `evidence`; the end is the last item | the upstream connection, the attempt's clocks | no more orders |
| evaluator | `evidence` | `wire` (releases), then `reports` | the evidence tail and its reservation, filter state | `evidence` is closed |
| recovery coordinator | `reports` | `orders`; the terminal to `wire` | the attempt history, recovery budget, plans | the terminal was sent |
| sink | `wire` | the caller | the commit boundary and the framing | the terminal is written, or the caller is gone |

The exchange (`exchange.py`) creates every channel, opens both nurseries and decides the order of close.
"""
