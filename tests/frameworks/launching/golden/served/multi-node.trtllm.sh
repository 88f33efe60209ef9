#!/usr/bin/env bash
# llama3-405b on 16 × h100-sxm-80gb, 1 × (tp 16): TensorRT-LLM's arguments
# note: servers that span hosts are started by Slurm: run the script in an allocation of these hosts
cat > config.yaml <<'END_OF_FILE'
dtype: bfloat16
enable_attention_dp: false
enable_chunked_prefill: true
kv_cache_config:
  dtype: auto
  free_gpu_memory_fraction: 0.9
cuda_graph_config:
  enable_padding: true
  max_batch_size: 64
END_OF_FILE
read -r -a HOST <<< "${HOSTS:?the names of all 2 hosts, with blanks between}"
: "${NODE_RANK:?the place of this host in HOSTS, from 0}"

serve() {  # GPUs, port, what differs between hosts
  srun -w "$3" -N 2 --ntasks 16 --ntasks-per-node=8 --gres=gpu:8 --mpi=pmix trtllm-llmapi-launch trtllm-serve meta-llama/Llama-3.1-405B-Instruct \
    --tp_size 16 \
    --max_batch_size 64 \
    --max_num_tokens 8192 \
    --max_seq_len 4864 \
    --kv_cache_free_gpu_memory_fraction 0.9 \
    --extra_llm_api_options config.yaml \
    --host 0.0.0.0 \
    --port "$2"
}

case $NODE_RANK in
  0)
    serve 0,1,2,3,4,5,6,7 8000 "${HOST[0]},${HOST[1]}" &
    ;;
esac
wait
