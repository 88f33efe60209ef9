#!/usr/bin/env bash
# llama3-70b on 8 × h100-sxm-80gb, 1 × (tp 8): vLLM's arguments
# note: llama3-70b is taken for meta-llama/Llama-3.3-70B-Instruct: set model.checkpoint for another of its shapes, such as llama3.1-70b
# note: the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits
vllm serve nvidia/Llama-3.3-70B-Instruct-FP8 \
  --tensor-parallel-size 8 \
  --kv-cache-dtype fp8 \
  --max-model-len 4864 \
  --max-num-seqs 128 \
  --max-num-batched-tokens 8192 \
  --gpu-memory-utilization 0.9
