"""`python -m sglang.launch_server` of the stand-in.

FAKE_MODE names what goes wrong; FAKE_ONCE names a file that limits it to the first launch; FAKE_ANSWER_S is how long an answer takes.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

MODE = os.environ.get("FAKE_MODE", "ok")
CRASH = """Scheduler hit an exception: Traceback (most recent call last):
  File "/venv/sglang/srt/managers/scheduler.py", line 3067, in run_scheduler_process
    scheduler.event_loop_overlap()
  File "/venv/sglang/srt/managers/scheduler.py", line 2275, in run_batch
    raise RuntimeError("the batch went wrong")
RuntimeError: the batch went wrong
"""
OUT_OF_MEMORY = """Scheduler hit an exception: Traceback (most recent call last):
  File "/venv/sglang/srt/layers/linear.py", line 40, in create_weights
    weight = torch.empty(size)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 94.97 GiB
"""
WORKER = "import time, sys; print('worker', flush=True); time.sleep(600)"


def once() -> bool:
    """Whether this launch is to misbehave: always, or the first time only."""
    marker = os.environ.get("FAKE_ONCE")
    if not marker:
        return True
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def log(text: str) -> None:
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}", flush=True)


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog="sglang serve")
    flags.add_argument("--model-path", "--model", required=True)
    flags.add_argument("--tp-size", "--tensor-parallel-size", type=int, default=1)
    flags.add_argument("--mem-fraction-static", type=float)
    flags.add_argument("--kv-cache-dtype", choices=["auto", "bf16", "fp8_e4m3"], default="auto")
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, default=30000)
    flags.add_argument("--device")
    flags.add_argument("--api-key")
    flags.add_argument("--attention-backend")
    flags.add_argument("--enable-metrics", action="store_true")
    if MODE != "old_build":
        flags.add_argument("--config")
    return flags


def arguments() -> argparse.Namespace:
    words = sys.argv[1:]
    if "--config" in words:
        place = words.index("--config")
        for key, value in yaml.safe_load(Path(words[place + 1]).read_text()).items():
            words += [f"--{key}"] if value is True else [f"--{key}", str(value)]
    return parser().parse_args(words)


class Server(ThreadingHTTPServer):
    """State of the stand-in: how many requests it answered, and whether it misbehaves."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, args: argparse.Namespace, mode: str) -> None:
        super().__init__((args.host, args.port), Handler)
        self.args = args
        self.mode = mode
        self.answered = 0
        self.running = 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, form: str, *args: object) -> None:
        print(f'INFO:     127.0.0.1:1 - "{self.requestline}" 200 OK', flush=True)

    def answer(self, value: object, code: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def allowed(self) -> bool:
        key = self.server.args.api_key
        if key is None or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self.answer({"error": "Unauthorized"}, 401)
        return False

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer("")
            return
        if not self.allowed():
            return
        old = self.server.mode == "old_build"
        model = "/another/model" if self.server.mode == "wrong_model" else self.server.args.model_path
        capacity = 4578 if self.server.mode == "small_kv" else 65536
        if self.path == ("/get_model_info" if old else "/model_info"):
            self.answer({"model_path": model, "served_model_name": model})
        elif self.path == ("/get_server_info" if old else "/server_info"):
            newer = {"max_total_num_tokens": capacity, "max_req_input_len": 2042}
            older = {"internal_states": [{"memory_usage": {"token_capacity": capacity}}]}
            self.answer({"version": "0.0.1+fake", **(older if old else newer)})
        else:
            self.answer({"error": "no such page"}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            return
        self.server.running += 1
        try:
            self.generate(body)
        finally:
            self.server.running -= 1

    def generate(self, body: dict) -> None:
        mode, count = self.server.mode, self.server.answered
        if mode == "silent" or (mode == "wedge" and count >= 2):
            time.sleep(600)
        if mode == "crash_on_first_batch" and count >= 1:
            log(CRASH)
            os.kill(os.getpid(), signal.SIGQUIT)
            time.sleep(600)  # the signal may reach another thread first, and this one would answer meanwhile
        time.sleep(float(os.environ.get("FAKE_ANSWER_S", "0")))
        self.server.answered += 1
        tokens = body["sampling_params"]["max_new_tokens"]
        log(f"Decode batch, #running-req: 1, #token: {tokens}")
        self.answer(
            {"text": "", "output_ids": [5] * tokens, "meta_info": {"completion_tokens": tokens, "finish_reason": {"type": "length"}}}
        )


def start_worker(mode: str) -> None:
    """A worker as SGLang's schedulers are: of the same session, or escaped from it with nothing but its output, or not even that."""
    if mode == "escaping_worker":
        # Its environment is wiped, as setproctitle does, and it leaves the session: only its output still tells whose it is.
        subprocess.Popen([sys.executable, "-c", WORKER], env={}, start_new_session=True)
    elif mode == "deaf_worker":
        null = subprocess.DEVNULL
        subprocess.Popen([sys.executable, "-c", WORKER], env={}, start_new_session=True, stdout=null, stderr=null)
    elif mode == "worker":
        subprocess.Popen([sys.executable, "-c", WORKER])


def serve(args: argparse.Namespace, mode: str) -> None:
    server = Server(args, mode)

    def drain(*_: object) -> None:
        log("SIGTERM received. Draining requests and shutting down...")
        threading.Thread(target=finish, daemon=True).start()

    def finish() -> None:
        while server.running:
            time.sleep(0.05)
        os._exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if mode == "deaf_to_term" else drain)
    log("The server is fired up and ready to roll!")
    server.serve_forever()


def main() -> None:
    args = arguments()
    mode = MODE if once() else "ok"
    log(f"server_args=ServerArgs(model_path={args.model_path!r}, api_key={args.api_key!r})")
    for shard in range(int(os.environ.get("FAKE_LOAD_STEPS", "2"))):
        log(f"Loading safetensors checkpoint shards: {shard}")
        time.sleep(0.2)
    if mode == "hang_at_load":
        time.sleep(600)
    if mode == "crash_at_load":
        raise ValueError("the checkpoint holds no such layer: model.layers.61")
    if mode == "out_of_memory":
        log(OUT_OF_MEMORY)
        sys.exit(1)
    log("Load weight end. elapsed=0.4 s")
    start_worker(mode)
    serve(args, mode)


if __name__ == "__main__":
    main()
