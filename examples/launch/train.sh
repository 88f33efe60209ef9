#!/bin/bash
# A launch of LLaMA-3 8B on two nodes of eight H100, as many scripts have it.
NNODES=2
TP=8
ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear
    --position-embedding-type rope --untie-embeddings-and-output-weights --vocab-size 128256
    --seq-length 8192 --max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size 512
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size 1 --sequence-parallel
    --use-distributed-optimizer --overlap-grad-reduce --bf16 --attention-dropout 0 --hidden-dropout 0
)
torchrun --nnodes $NNODES --nproc-per-node 8 pretrain_gpt.py "${ARGS[@]}" --save "$CHECKPOINTS"
