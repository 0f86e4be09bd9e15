"""A server that speaks SGLang's protocol with the timing of a real 8-GPU host, for tests, benchmarks and planning."""
