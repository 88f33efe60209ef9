#!/bin/bash
#SBATCH --job-name=dsv3
#SBATCH --nodes=128            # hosts
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8

PR=${PR:-fp8}
TP=1; PP=16; EP=64
MBS=1
GBS=$((MBS * 4096))
NAME="dsv3-tp${TP}-pp${PP}-ep${EP}"

case $PR in
  bf16) PR_OPTIONS="--bf16" ;;
  fp8|FP8)
    PR_OPTIONS="--bf16 --fp8-format e4m3 --fp8-recipe blockwise"
    ;;
  *) echo "no such precision"; exit 1 ;;
esac

MODEL_OPTIONS=" \
  --num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --kv-channels 128 \
  --seq-length 4096 --max-position-embeddings 4096 --position-embedding-type rope \
  --normalization RMSNorm --swiglu --untie-embeddings-and-output-weights --disable-bias-linear \
  --attention-dropout 0.0 --hidden-dropout 0.0 --make-vocab-size-divisible-by 3232 \
  --multi-latent-attention --qk-layernorm --q-lora-rank 1536 --kv-lora-rank 512 \
  --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128"
MOE_OPTIONS=" \
  --num-experts 256 --moe-layer-freq \"([0]*3+[1]*58)\" --moe-ffn-hidden-size 2048 \
  --moe-shared-expert-intermediate-size 2048 --moe-router-topk 8 --moe-grouped-gemm \
  --moe-token-dispatcher-type flex --moe-enable-deepep --moe-router-score-function sigmoid \
  --moe-router-enable-expert-bias --moe-router-num-groups 8 --moe-router-group-topk 4"
OPTIONS="$MODEL_OPTIONS $MOE_OPTIONS $PR_OPTIONS \
  --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} \
  --expert-model-parallel-size ${EP} --expert-tensor-parallel-size 1 \
  --num-virtual-stages-per-pipeline-rank 1 \
  --micro-batch-size ${MBS} --global-batch-size ${GBS} \
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
  --recompute-granularity selective --recompute-modules mla_up_proj moe_act layernorm \
  --tokenizer-type HuggingFaceTokenizer --tokenizer-model deepseek-ai/DeepSeek-V3 \
  --mtp-num-layers 1 --data-path ${DATA} --tensorboard-dir ${OUTPUT}/$NAME"

run_cmd="cd ${MEGATRON}; python -u pretrain_gpt.py ${OPTIONS}"
srun -l --container-image "${IMAGE}" --output="%x_%j.log" bash -c "${run_cmd}"
