#!/usr/bin/env bash
# llama3-405b on 16 × h100-sxm-80gb, 1 × (tp 16): Dynamo's deployment with vLLM
# note: put the tag of your vllm-runtime image in place of my-tag, and your token into the secret hf-token-secret
cat > deployment.yaml <<'END_OF_FILE'
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata:
  name: llama-3-1-405b-instruct
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
    multinode:
      nodeCount: 2
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
          - meta-llama/Llama-3.1-405B-Instruct
          - --tensor-parallel-size
          - '16'
          - --dtype
          - bfloat16
          - --max-model-len
          - '4864'
          - --max-num-seqs
          - '64'
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
