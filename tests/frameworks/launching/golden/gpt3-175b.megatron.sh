#!/usr/bin/env bash
# gpt3-175b on 512 × h100-sxm-80gb, dp 32 × tp 8 × cp 1 × pp 2: Megatron-LM's arguments, as of commit 000c4ac24f61
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nnodes 64 --nproc-per-node 8 --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}" \
  pretrain_gpt.py \
  --tensor-model-parallel-size 8 \
  --pipeline-model-parallel-size 2 \
  --context-parallel-size 1 \
  --sequence-parallel \
  --micro-batch-size 1 \
  --global-batch-size 1536 \
  --num-layers 96 \
  --hidden-size 12288 \
  --ffn-hidden-size 49152 \
  --num-attention-heads 96 \
  --seq-length 2048 \
  --max-position-embeddings 2048 \
  --position-embedding-type learned_absolute \
  --bf16 \
  --use-distributed-optimizer \
  --overlap-grad-reduce \
  --overlap-param-gather \
  --attention-dropout 0.0 \
  --hidden-dropout 0.0 \
  --tokenizer-type NullTokenizer \
  --vocab-size 50257 \
  --mock-data \
  --train-iters 50 \
  --lr 0.0001 \
  --eval-iters 0
