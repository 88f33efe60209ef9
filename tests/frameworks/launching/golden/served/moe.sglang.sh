#!/usr/bin/env bash
# deepseek-v3 on 8 × h200-sxm-141gb, 1 × (tp 1, attention dp 8, ep 8): SGLang's arguments
# note: the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits
python -m sglang.launch_server \
  --model-path deepseek-ai/DeepSeek-V3 \
  --tp-size 8 \
  --dp-size 8 \
  --enable-dp-attention \
  --ep-size 8 \
  --kv-cache-dtype fp8_e4m3 \
  --context-length 4864 \
  --max-running-requests 512 \
  --cuda-graph-max-bs 16 \
  --chunked-prefill-size 32768 \
  --mem-fraction-static 0.8736 \
  --host 0.0.0.0
