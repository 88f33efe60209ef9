#!/usr/bin/env bash
# deepseek-v3 on 8 × h200-sxm-141gb, 1 × (tp 1, attention dp 8, ep 8): vLLM's arguments
# note: the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits
vllm serve deepseek-ai/DeepSeek-V3 \
  --tensor-parallel-size 1 \
  --data-parallel-size 8 \
  --enable-expert-parallel \
  --kv-cache-dtype fp8 \
  --max-model-len 4864 \
  --max-num-seqs 64 \
  --max-num-batched-tokens 4096 \
  --gpu-memory-utilization 0.9
