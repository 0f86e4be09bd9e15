"""The demo: the whole job on one machine, with the real SGLang on the CPU as the GPU host."""
