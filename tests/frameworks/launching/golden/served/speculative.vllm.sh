#!/usr/bin/env bash
# deepseek-v3 on 8 × b200-sxm-180gb, 1 × (tp 8, ep 8): vLLM's arguments
# note: a checkpoint in NVFP4 (or MXFP4) is needed for fp4: quantize deepseek-ai/DeepSeek-V3, or find one
# note: the numbers assume that 70% of drafted tokens are accepted: measure it
# note: the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits
vllm serve deepseek-ai/DeepSeek-V3 \
  --tensor-parallel-size 8 \
  --enable-expert-parallel \
  --kv-cache-dtype fp8 \
  --max-model-len 4864 \
  --max-num-seqs 32 \
  --max-num-batched-tokens 8192 \
  --gpu-memory-utilization 0.9 \
  --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
