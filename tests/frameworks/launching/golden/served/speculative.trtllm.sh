#!/usr/bin/env bash
# deepseek-v3 on 8 × b200-sxm-180gb, 1 × (tp 8, ep 8): TensorRT-LLM's arguments
# note: a checkpoint in NVFP4 (or MXFP4) is needed for fp4: quantize deepseek-ai/DeepSeek-V3, or find one
# note: the numbers assume that 70% of drafted tokens are accepted: measure it
# note: the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits
cat > config.yaml <<'END_OF_FILE'
enable_attention_dp: false
enable_chunked_prefill: true
kv_cache_config:
  dtype: fp8
  free_gpu_memory_fraction: 0.9
cuda_graph_config:
  enable_padding: true
  max_batch_size: 32
moe_config:
  backend: CUTLASS
speculative_config:
  decoding_type: MTP
  max_draft_len: 2
  num_nextn_predict_layers: 2
END_OF_FILE
trtllm-serve deepseek-ai/DeepSeek-V3 \
  --tp_size 8 \
  --ep_size 8 \
  --max_batch_size 32 \
  --max_num_tokens 8192 \
  --max_seq_len 4864 \
  --kv_cache_free_gpu_memory_fraction 0.9 \
  --extra_llm_api_options config.yaml \
  --host 0.0.0.0
