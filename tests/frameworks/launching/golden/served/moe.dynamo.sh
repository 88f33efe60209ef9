#!/usr/bin/env bash
# deepseek-v3 on 8 × h200-sxm-141gb, 1 × (tp 1, attention dp 8, ep 8): Dynamo's deployment with vLLM
# note: put the tag of your vllm-runtime image in place of my-tag, and your token into the secret hf-token-secret
# note: the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits
cat > deployment.yaml <<'END_OF_FILE'
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata:
  name: deepseek-v3
spec:
  backendFramework: vllm
  components:
  - name: Frontend
    type: frontend
    replicas: 1
    podTemplate:
      spec:
        containers:
        - name: main
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:my-tag
  - name: worker
    type: worker
    replicas: 1
    podTemplate:
      spec:
        containers:
        - name: main
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:my-tag
          command:
          - python3
          - -m
          - dynamo.vllm
          args:
          - --model
          - deepseek-ai/DeepSeek-V3
          - --tensor-parallel-size
          - '1'
          - --data-parallel-size
          - '8'
          - --enable-expert-parallel
          - --kv-cache-dtype
          - fp8
          - --max-model-len
          - '4864'
          - --max-num-seqs
          - '64'
          - --max-num-batched-tokens
          - '4096'
          - --gpu-memory-utilization
          - '0.9'
          envFrom:
          - secretRef:
              name: hf-token-secret
          resources:
            limits:
              nvidia.com/gpu: '8'
END_OF_FILE
kubectl apply -f deployment.yaml
