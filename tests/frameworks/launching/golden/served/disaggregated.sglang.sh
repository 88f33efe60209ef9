#!/usr/bin/env bash
# llama3-70b on 24 × h100-sxm-80gb, 4 × (tp 4) to prefill and 1 × (tp 8) to decode: SGLang's arguments
# note: llama3-70b is taken for meta-llama/Llama-3.3-70B-Instruct: set model.checkpoint for another of its shapes, such as llama3.1-70b
# note: the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits
read -r -a HOST <<< "${HOSTS:?the names of all 3 hosts, with blanks between}"
: "${NODE_RANK:?the place of this host in HOSTS, from 0}"

prefill() {  # GPUs, port, what differs between hosts
  CUDA_VISIBLE_DEVICES=$1 python -m sglang.launch_server \
    --model-path nvidia/Llama-3.3-70B-Instruct-FP8 \
    --tp-size 4 \
    --kv-cache-dtype fp8_e4m3 \
    --context-length 4864 \
    --max-running-requests 256 \
    --chunked-prefill-size 16384 \
    --mem-fraction-static 0.6867 \
    --disaggregation-mode prefill \
    --disaggregation-transfer-backend nixl \
    --host 0.0.0.0 \
    --port "$2" \
    --disaggregation-bootstrap-port "$(($2 + 1000))" \
    "${@:3}"
}

decode() {  # GPUs, port, what differs between hosts
  CUDA_VISIBLE_DEVICES=$1 python -m sglang.launch_server \
    --model-path nvidia/Llama-3.3-70B-Instruct-FP8 \
    --tp-size 8 \
    --kv-cache-dtype fp8_e4m3 \
    --context-length 4864 \
    --max-running-requests 256 \
    --cuda-graph-max-bs 128 \
    --chunked-prefill-size 4096 \
    --mem-fraction-static 0.8534 \
    --disaggregation-mode decode \
    --disaggregation-transfer-backend nixl \
    --host 0.0.0.0 \
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
  python -m sglang_router.launch_router \
    --pd-disaggregation \
    --prefill "http://${HOST[0]}:8001" 9001 \
    --prefill "http://${HOST[0]}:8002" 9002 \
    --prefill "http://${HOST[1]}:8001" 9001 \
    --prefill "http://${HOST[1]}:8002" 9002 \
    --decode "http://${HOST[2]}:8001" \
    --policy round_robin \
    --host 0.0.0.0 \
    --port 8000 &
fi
wait
