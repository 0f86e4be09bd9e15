"""Put before `demo/cpu_shim` on the path of an SGLang environment: any such environment then serves on the CPU."""

import gpu_stand_ins  # noqa: F401 - importing is what it is for
