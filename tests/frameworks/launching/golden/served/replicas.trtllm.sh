#!/usr/bin/env bash
# llama3-8b on 8 × h100-sxm-80gb, 4 × (tp 2): TensorRT-LLM's arguments
# note: TensorRT-LLM has no router for equal servers: put a load balancer before them, or export to dynamo
cat > config.yaml <<'END_OF_FILE'
dtype: bfloat16
enable_attention_dp: false
enable_chunked_prefill: true
kv_cache_config:
  dtype: auto
  free_gpu_memory_fraction: 0.9
cuda_graph_config:
  enable_padding: true
  max_batch_size: 128
END_OF_FILE

serve() {  # GPUs, port, what differs between hosts
  CUDA_VISIBLE_DEVICES=$1 trtllm-serve meta-llama/Llama-3.1-8B-Instruct \
    --tp_size 2 \
    --max_batch_size 128 \
    --max_num_tokens 8192 \
    --max_seq_len 4864 \
    --kv_cache_free_gpu_memory_fraction 0.9 \
    --extra_llm_api_options config.yaml \
    --host 0.0.0.0 \
    --port "$2" \
    "${@:3}"
}

serve 0,1 8001 &
serve 2,3 8002 &
serve 4,5 8003 &
serve 6,7 8004 &
wait
