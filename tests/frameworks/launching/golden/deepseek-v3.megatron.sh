#!/usr/bin/env bash
# deepseek-v3 on 2,048 × h100-sxm-80gb, dp 128 × tp 4 × cp 1 × pp 4: Megatron-LM's arguments, as of commit 000c4ac24f61
# note: the design's experts are evenly loaded: add --moe-router-force-load-balancing to time it with mock data
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nnodes 256 --nproc-per-node 8 --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}" \
  pretrain_gpt.py \
  --tensor-model-parallel-size 4 \
  --pipeline-model-parallel-size 4 \
  --context-parallel-size 1 \
  --sequence-parallel \
  --expert-model-parallel-size 64 \
  --expert-tensor-parallel-size 4 \
  --moe-token-dispatcher-type flex \
  --moe-enable-deepep \
  --moe-grouped-gemm \
  --pipeline-model-parallel-layout 'Et*16|t*15|t*15|t*15L' \
  --micro-batch-size 1 \
  --global-batch-size 15360 \
  --num-layers 61 \
  --hidden-size 7168 \
  --ffn-hidden-size 18432 \
  --swiglu \
  --normalization RMSNorm \
  --untie-embeddings-and-output-weights \
  --num-attention-heads 128 \
  --multi-latent-attention \
  --q-lora-rank 1536 \
  --kv-lora-rank 512 \
  --qk-head-dim 128 \
  --qk-pos-emb-head-dim 64 \
  --v-head-dim 128 \
  --qk-layernorm \
  --seq-length 4096 \
  --max-position-embeddings 4096 \
  --position-embedding-type rope \
  --disable-bias-linear \
  --num-experts 256 \
  --moe-router-topk 8 \
  --moe-ffn-hidden-size 2048 \
  --moe-shared-expert-intermediate-size 2048 \
  --moe-layer-freq '([0]*3+[1]*58)' \
  --bf16 \
  --grad-reduce-in-bf16 \
  --fp8-format hybrid \
  --use-distributed-optimizer \
  --overlap-grad-reduce \
  --overlap-param-gather \
  --fp8-param-gather \
  --attention-dropout 0.0 \
  --hidden-dropout 0.0 \
  --tokenizer-type NullTokenizer \
  --vocab-size 129280 \
  --mock-data \
  --train-iters 50 \
  --lr 0.0001 \
  --eval-iters 0
