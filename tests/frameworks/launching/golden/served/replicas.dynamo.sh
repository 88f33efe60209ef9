#!/usr/bin/env bash
# llama3-8b on 8 × h100-sxm-80gb, 4 × (tp 2): Dynamo's deployment with vLLM
# note: put the tag of your vllm-runtime image in place of my-tag, and your token into the secret hf-token-secret
cat > deployment.yaml <<'END_OF_FILE'
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata:
  name: llama-3-1-8b-instruct
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
    replicas: 4
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
          - meta-llama/Llama-3.1-8B-Instruct
          - --tensor-parallel-size
          - '2'
          - --dtype
          - bfloat16
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
              nvidia.com/gpu: '2'
END_OF_FILE
kubectl apply -f deployment.yaml
