#!/usr/bin/env bash
# llama3-70b on 8 × h100-sxm-80gb, 1 × (tp 8): Dynamo's deployment with vLLM
# note: put the tag of your vllm-runtime image in place of my-tag, and your token into the secret hf-token-secret
# note: llama3-70b is taken for meta-llama/Llama-3.3-70B-Instruct: set model.checkpoint for another of its shapes, such as llama3.1-70b
# note: the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits
cat > deployment.yaml <<'END_OF_FILE'
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata:
  name: llama-3-3-70b-instruct-fp8
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
          - nvidia/Llama-3.3-70B-Instruct-FP8
          - --tensor-parallel-size
          - '8'
          - --kv-cache-dtype
          - fp8
          - --max-model-len
          - '4864'
          - --max-num-seqs
          - '128'
          - --max-num-batched-tokens
          - '8192'
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
