#!/usr/bin/env bash
# llama3-405b on 16 × h100-sxm-80gb, 1 × (tp 16): SGLang's arguments
read -r -a HOST <<< "${HOSTS:?the names of all 2 hosts, with blanks between}"
: "${NODE_RANK:?the place of this host in HOSTS, from 0}"

serve() {  # GPUs, port, what differs between hosts
  CUDA_VISIBLE_DEVICES=$1 python -m sglang.launch_server \
    --model-path meta-llama/Llama-3.1-405B-Instruct \
    --tp-size 16 \
    --dtype bfloat16 \
    --context-length 4864 \
    --max-running-requests 64 \
    --cuda-graph-max-bs 64 \
    --chunked-prefill-size 8192 \
    --mem-fraction-static 0.8172 \
    --host 0.0.0.0 \
    --port "$2" \
    "${@:3}"
}

case $NODE_RANK in
  0)
    serve 0,1,2,3,4,5,6,7 8000 --nnodes 2 --node-rank 0 --dist-init-addr "${HOST[0]}":20000 &
    ;;
  1)
    serve 0,1,2,3,4,5,6,7 8000 --nnodes 2 --node-rank 1 --dist-init-addr "${HOST[0]}":20000 &
    ;;
esac
wait
