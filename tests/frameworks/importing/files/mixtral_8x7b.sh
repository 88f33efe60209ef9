#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
MASTER_ADDR=${MASTER_ADDR:-"localhost"}
NNODES=${SLURM_NNODES:-"4"}
NODE_RANK=${RANK:-"0"}
DATA_PATH=$3

DISTRIBUTED_ARGS=" \
    --nproc-per-node $GPUS_PER_NODE \
    --nnodes $NNODES \
    --node-rank $NODE_RANK \
    --rdzv-backend c10d"

MODEL_ARGS=(
    --use-mcore-models
    --disable-bias-linear
    --seq-length 4096
    --max-position-embeddings 32768
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --normalization RMSNorm
    --position-embedding-type rope
    --swiglu
    --untie-embeddings-and-output-weights
    --group-query-attention
    --num-query-groups 8
    --no-masked-softmax-fusion
    --rotary-base 1000000
)
MOE_ARGS=(
    --num-experts 8
    --moe-router-topk 2
    --moe-router-load-balancing-type aux_loss
    --moe-aux-loss-coeff 1e-2
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
    --overlap-param-gather
    --overlap-grad-reduce
)
DATA_ARGS=(
    --tokenizer-type Llama2Tokenizer
    --mock-data
    #--data-path $DATA_PATH
    --split 99990,8,2
)
MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 4
    --expert-model-parallel-size 8
    --use-distributed-optimizer
    --sequence-parallel
)
LOGGING_ARGS=(
    --log-interval 1 \
    --eval-iters 10 \
    #--save $CHECKPOINT_PATH \
    --no-load-optim \
    --no-load-rng
)
torchrun ${DISTRIBUTED_ARGS} pretrain_gpt.py "${MODEL_ARGS[@]}" "${MOE_ARGS[@]}" "${DATA_ARGS[@]}" \
    --micro-batch-size 1 --global-batch-size 256 --lr 1e-4 --train-iters 500000 --bf16 \
    "${MODEL_PARALLEL_ARGS[@]}" "${LOGGING_ARGS[@]}"
