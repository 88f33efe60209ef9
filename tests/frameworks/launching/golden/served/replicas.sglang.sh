#!/usr/bin/env bash
# llama3-8b on 8 × h100-sxm-80gb, 4 × (tp 2): SGLang's arguments

serve() {  # GPUs, port, what differs between hosts
  CUDA_VISIBLE_DEVICES=$1 python -m sglang.launch_server \
    --model-path meta-llama/Llama-3.1-8B-Instruct \
    --tp-size 2 \
    --dtype bfloat16 \
    --context-length 4864 \
    --max-running-requests 128 \
    --cuda-graph-max-bs 32 \
    --chunked-prefill-size 8192 \
    --mem-fraction-static 0.8398 \
    --host 0.0.0.0 \
    --port "$2" \
    "${@:3}"
}

serve 0,1 8001 &
serve 2,3 8002 &
serve 4,5 8003 &
serve 6,7 8004 &
python -m sglang_router.launch_router \
  --worker-urls \
  http://127.0.0.1:8001 \
  http://127.0.0.1:8002 \
  http://127.0.0.1:8003 \
  http://127.0.0.1:8004 \
  --policy round_robin \
  --host 0.0.0.0 \
  --port 8000 &
wait
