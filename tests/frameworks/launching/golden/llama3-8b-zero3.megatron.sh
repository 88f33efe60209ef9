#!/usr/bin/env bash
# llama3-8b on 64 × h100-sxm-80gb, dp 32 × tp 1 × cp 2 × pp 1: Megatron-LM's arguments, as of commit 000c4ac24f61
# note: Megatron-FSDP needs CUDA_DEVICE_MAX_CONNECTIONS above 1, tensor and context parallelism want 1: it is 8
export CUDA_DEVICE_MAX_CONNECTIONS=8
torchrun --nnodes 8 --nproc-per-node 8 --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}" \
  pretrain_gpt.py \
  --tensor-model-parallel-size 1 \
  --pipeline-model-parallel-size 1 \
  --context-parallel-size 2 \
  --cp-comm-type p2p \
  --micro-batch-size 1 \
  --global-batch-size 512 \
  --num-layers 32 \
  --hidden-size 4096 \
  --ffn-hidden-size 14336 \
  --swiglu \
  --normalization RMSNorm \
  --untie-embeddings-and-output-weights \
  --num-attention-heads 32 \
  --group-query-attention \
  --num-query-groups 8 \
  --seq-length 8192 \
  --max-position-embeddings 8192 \
  --position-embedding-type rope \
  --disable-bias-linear \
  --bf16 \
  --use-distributed-optimizer \
  --use-megatron-fsdp \
  --data-parallel-sharding-strategy optim_grads_params \
  --ckpt-format fsdp_dtensor \
  --no-gradient-accumulation-fusion \
  --overlap-grad-reduce \
  --overlap-param-gather \
  --attention-dropout 0.0 \
  --hidden-dropout 0.0 \
  --tokenizer-type NullTokenizer \
  --vocab-size 128256 \
  --mock-data \
  --train-iters 50 \
  --lr 0.0001 \
  --eval-iters 0
