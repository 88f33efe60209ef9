#!/usr/bin/env bash
# llama3-70b on 8 × h100-sxm-80gb, 1 × (tp 8): TensorRT-LLM's arguments
# note: llama3-70b is taken for meta-llama/Llama-3.3-70B-Instruct: set model.checkpoint for another of its shapes, such as llama3.1-70b
# note: the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits
cat > config.yaml <<'END_OF_FILE'
enable_attention_dp: false
enable_chunked_prefill: true
kv_cache_config:
  dtype: fp8
  free_gpu_memory_fraction: 0.9
cuda_graph_config:
  enable_padding: true
  max_batch_size: 128
END_OF_FILE
trtllm-serve nvidia/Llama-3.3-70B-Instruct-FP8 \
  --tp_size 8 \
  --max_batch_size 128 \
  --max_num_tokens 8192 \
  --max_seq_len 4864 \
  --kv_cache_free_gpu_memory_fraction 0.9 \
  --extra_llm_api_options config.yaml \
  --host 0.0.0.0
