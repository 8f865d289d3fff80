"""HTTP in and out: the only home of httpx, Quart and Hypercorn."""
