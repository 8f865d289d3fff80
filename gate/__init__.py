"""Pure core of the gate: values in, values out; no input or output, clock or randomness."""
