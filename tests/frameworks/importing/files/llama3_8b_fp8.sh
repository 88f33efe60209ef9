#!/usr/bin/env bash
set -euo pipefail

OUT=${1:-"runs/llama3_8b"}
TOKENIZER=${2:-"MOCK"}
mkdir -p "$(dirname "$OUT")"

GPUS_PER_NODE=8
NUM_NODES=1
TP_SIZE=2
CP_SIZE=2
DTYPE="fp8"
SEQ_LENGTH=8192

MODEL=(
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
  --num-attention-heads 32 --group-query-attention --num-query-groups 8 --kv-channels 128
  --seq-length $SEQ_LENGTH --max-position-embeddings $SEQ_LENGTH
  --position-embedding-type rope --rotary-base 500000
  --normalization RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights
  --attention-dropout 0.0 --hidden-dropout 0.0 --attention-backend fused
)
TRAINING=(
  --micro-batch-size 1
  --global-batch-size 128
  --bf16
  --grad-reduce-in-bf16
  --cross-entropy-loss-fusion   # the native kernel
  --lr 0.00015 --min-lr 0.00001
)

PRECISION=()
if [[ "$DTYPE" == "fp8" ]]; then
    PRECISION+=(
        "--fp8-format hybrid"
        "--fp8-amax-history-len 1024"
        "--fp8-param-gather"
    )
elif [[ "$DTYPE" != "bf16" ]]; then
    echo "unknown dtype"
    exit 1
fi

PARALLEL=(
    --tensor-model-parallel-size $TP_SIZE
    --context-parallel-size $CP_SIZE
    # --pipeline-model-parallel-size 2
    --sequence-parallel
)
DDP=( --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather )
TRAINING+=("${DDP[@]}")

DATA=()
if [[ "$TOKENIZER" == "MOCK" ]] || [[ -z "$TOKENIZER" ]]; then
    DATA+=( "--mock-data" "--tokenizer-type NullTokenizer" "--vocab-size 128256" "--split '99,1,0'" )
else
    DATA+=( "--data-path $TOKENIZER" "--vocab-size 1000" )
fi
if [ -n "${WANDB_API_KEY}" ]; then
    DATA+=( --wandb-project llama --wandb-exp-name ${WANDB_NAME:-"fp8"} )
fi
if [ ! -f "pretrain_gpt.py" ]; then
    echo "run it from the root of Megatron-LM"
    exit 1
fi

torchrun --standalone --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES \
    "pretrain_gpt.py" \
    ${MODEL[@]} ${TRAINING[@]} ${PRECISION[@]} ${PARALLEL[@]} ${DATA[@]} \
    --save "$OUT" 2>&1 | tee "$OUT/log.txt"
