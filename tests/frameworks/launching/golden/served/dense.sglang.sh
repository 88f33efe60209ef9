#!/usr/bin/env bash
# llama3-70b on 8 × h100-sxm-80gb, 1 × (tp 8): SGLang's arguments
# note: llama3-70b is taken for meta-llama/Llama-3.3-70B-Instruct: set model.checkpoint for another of its shapes, such as llama3.1-70b
# note: the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits
python -m sglang.launch_server \
  --model-path nvidia/Llama-3.3-70B-Instruct-FP8 \
  --tp-size 8 \
  --kv-cache-dtype fp8_e4m3 \
  --context-length 4864 \
  --max-running-requests 128 \
  --cuda-graph-max-bs 128 \
  --chunked-prefill-size 8192 \
  --mem-fraction-static 0.8281 \
  --host 0.0.0.0
