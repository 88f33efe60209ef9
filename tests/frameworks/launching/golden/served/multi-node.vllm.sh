#!/usr/bin/env bash
# llama3-405b on 16 × h100-sxm-80gb, 1 × (tp 16): vLLM's arguments
read -r -a HOST <<< "${HOSTS:?the names of all 2 hosts, with blanks between}"
: "${NODE_RANK:?the place of this host in HOSTS, from 0}"

serve() {  # GPUs, port, what differs between hosts
  CUDA_VISIBLE_DEVICES=$1 vllm serve meta-llama/Llama-3.1-405B-Instruct \
    --tensor-parallel-size 16 \
    --dtype bfloat16 \
    --max-model-len 4864 \
    --max-num-seqs 64 \
    --max-num-batched-tokens 8192 \
    --gpu-memory-utilization 0.9 \
    --port "$2" \
    "${@:3}"
}

case $NODE_RANK in
  0)
    serve 0,1,2,3,4,5,6,7 8000 --nnodes 2 --node-rank 0 --master-addr "${HOST[0]}" &
    ;;
  1)
    serve 0,1,2,3,4,5,6,7 8000 --nnodes 2 --node-rank 1 --master-addr "${HOST[0]}" --headless &
    ;;
esac
wait
