#!/usr/bin/env bash
# llama3-70b on 24 × h100-sxm-80gb, 4 × (tp 4) to prefill and 1 × (tp 8) to decode: TensorRT-LLM's arguments
# note: llama3-70b is taken for meta-llama/Llama-3.3-70B-Instruct: set model.checkpoint for another of its shapes, such as llama3.1-70b
# note: the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits
cat > prefill.yaml <<'END_OF_FILE'
enable_attention_dp: false
enable_chunked_prefill: true
kv_cache_config:
  dtype: fp8
  free_gpu_memory_fraction: 0.9
cuda_graph_config: null
disable_overlap_scheduler: true
cache_transceiver_config:
  backend: DEFAULT
  max_tokens_in_buffer: 4864
END_OF_FILE
cat > decode.yaml <<'END_OF_FILE'
enable_attention_dp: false
enable_chunked_prefill: true
kv_cache_config:
  dtype: fp8
  free_gpu_memory_fraction: 0.9
cuda_graph_config:
  enable_padding: true
  max_batch_size: 256
disable_overlap_scheduler: false
cache_transceiver_config:
  backend: DEFAULT
  max_tokens_in_buffer: 4864
END_OF_FILE
cat > disaggregated.yaml <<'END_OF_FILE'
hostname: 0.0.0.0
port: 8000
backend: pytorch
context_servers:
  num_instances: 4
  urls:
  - HOST0:8001
  - HOST0:8002
  - HOST1:8001
  - HOST1:8002
generation_servers:
  num_instances: 1
  urls:
  - HOST2:8001
END_OF_FILE
read -r -a HOST <<< "${HOSTS:?the names of all 3 hosts, with blanks between}"
: "${NODE_RANK:?the place of this host in HOSTS, from 0}"

prefill() {  # GPUs, port, what differs between hosts
  CUDA_VISIBLE_DEVICES=$1 trtllm-serve nvidia/Llama-3.3-70B-Instruct-FP8 \
    --tp_size 4 \
    --max_batch_size 256 \
    --max_num_tokens 16384 \
    --max_seq_len 4864 \
    --kv_cache_free_gpu_memory_fraction 0.9 \
    --extra_llm_api_options prefill.yaml \
    --host 0.0.0.0 \
    --port "$2" \
    "${@:3}"
}

decode() {  # GPUs, port, what differs between hosts
  CUDA_VISIBLE_DEVICES=$1 trtllm-serve nvidia/Llama-3.3-70B-Instruct-FP8 \
    --tp_size 8 \
    --max_batch_size 256 \
    --max_num_tokens 4096 \
    --max_seq_len 4864 \
    --kv_cache_free_gpu_memory_fraction 0.9 \
    --extra_llm_api_options decode.yaml \
    --host 0.0.0.0 \
    --port "$2" \
    "${@:3}"
}

for place in "${!HOST[@]}"; do names+=(-e "s/HOST$place:/${HOST[place]}:/"); done
sed "${names[@]}" disaggregated.yaml > disaggregated_hosts.yaml
case $NODE_RANK in
  0 | 1)
    prefill 0,1,2,3 8001 &
    prefill 4,5,6,7 8002 &
    ;;
  2)
    decode 0,1,2,3,4,5,6,7 8001 &
    ;;
esac
if [ "$NODE_RANK" = 0 ]; then
  trtllm-serve disaggregated -c disaggregated_hosts.yaml &
fi
wait
