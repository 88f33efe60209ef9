#!/usr/bin/env bash
# deepseek-v3 on 8 × h200-sxm-141gb, 1 × (tp 1, attention dp 8, ep 8): TensorRT-LLM's arguments
# note: the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits
cat > config.yaml <<'END_OF_FILE'
enable_attention_dp: true
enable_chunked_prefill: true
kv_cache_config:
  dtype: fp8
  free_gpu_memory_fraction: 0.9
cuda_graph_config:
  enable_padding: true
  max_batch_size: 64
moe_config:
  backend: CUTLASS
END_OF_FILE
trtllm-serve deepseek-ai/DeepSeek-V3 \
  --tp_size 8 \
  --ep_size 8 \
  --max_batch_size 64 \
  --max_num_tokens 4096 \
  --max_seq_len 4864 \
  --kv_cache_free_gpu_memory_fraction 0.9 \
  --extra_llm_api_options config.yaml \
  --host 0.0.0.0
