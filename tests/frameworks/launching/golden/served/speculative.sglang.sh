#!/usr/bin/env bash
# deepseek-v3 on 8 × b200-sxm-180gb, 1 × (tp 8, ep 8): SGLang's arguments
# note: a checkpoint in NVFP4 (or MXFP4) is needed for fp4: quantize deepseek-ai/DeepSeek-V3, or find one
# note: the numbers assume that 70% of drafted tokens are accepted: measure it
# note: the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits
python -m sglang.launch_server \
  --model-path deepseek-ai/DeepSeek-V3 \
  --tp-size 8 \
  --ep-size 8 \
  --kv-cache-dtype fp8_e4m3 \
  --context-length 4864 \
  --max-running-requests 32 \
  --cuda-graph-max-bs 32 \
  --chunked-prefill-size 8192 \
  --mem-fraction-static 0.8793 \
  --speculative-algorithm EAGLE \
  --speculative-num-steps 2 \
  --speculative-eagle-topk 1 \
  --speculative-num-draft-tokens 3 \
  --host 0.0.0.0
