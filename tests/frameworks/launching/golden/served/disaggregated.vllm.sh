#!/usr/bin/env bash
# llama3-70b on 24 × h100-sxm-80gb, 4 × (tp 4) to prefill and 1 × (tp 8) to decode: vLLM's arguments
# note: llama3-70b is taken for meta-llama/Llama-3.3-70B-Instruct: set model.checkpoint for another of its shapes, such as llama3.1-70b
# note: the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits
read -r -a HOST <<< "${HOSTS:?the names of all 3 hosts, with blanks between}"
: "${NODE_RANK:?the place of this host in HOSTS, from 0}"

prefill() {  # GPUs, port, what differs between hosts
  VLLM_NIXL_SIDE_CHANNEL_HOST="${HOST[NODE_RANK]}" VLLM_NIXL_SIDE_CHANNEL_PORT=$((5600 + 64 * ($2 - 8000))) CUDA_VISIBLE_DEVICES=$1 vllm serve nvidia/Llama-3.3-70B-Instruct-FP8 \
    --tensor-parallel-size 4 \
    --kv-cache-dtype fp8 \
    --max-model-len 4864 \
    --max-num-seqs 256 \
    --max-num-batched-tokens 16384 \
    --gpu-memory-utilization 0.9 \
    --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}' \
    --port "$2" \
    "${@:3}"
}

decode() {  # GPUs, port, what differs between hosts
  VLLM_NIXL_SIDE_CHANNEL_HOST="${HOST[NODE_RANK]}" VLLM_NIXL_SIDE_CHANNEL_PORT=$((5600 + 64 * ($2 - 8000))) CUDA_VISIBLE_DEVICES=$1 vllm serve nvidia/Llama-3.3-70B-Instruct-FP8 \
    --tensor-parallel-size 8 \
    --kv-cache-dtype fp8 \
    --max-model-len 4864 \
    --max-num-seqs 256 \
    --max-num-batched-tokens 4096 \
    --gpu-memory-utilization 0.9 \
    --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}' \
    --port "$2" \
    "${@:3}"
}

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
  vllm-router \
    --vllm-pd-disaggregation \
    --prefill "http://${HOST[0]}:8001" \
    --prefill "http://${HOST[0]}:8002" \
    --prefill "http://${HOST[1]}:8001" \
    --prefill "http://${HOST[1]}:8002" \
    --decode "http://${HOST[2]}:8001" \
    --policy round_robin \
    --host 0.0.0.0 \
    --port 8000 &
fi
wait
