kubectl get nodes
