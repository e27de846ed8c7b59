package kube

import (
	"bytes"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"kamino.dev/kamino"
	agentseal "kamino.dev/kamino/agent/seal"
)

// TestSealPolicyTravels: what the run brings is what the agent reads.
func TestSealPolicyTravels(t *testing.T) {
	policy := append([]byte("apiVersion: kamino.dev/v1alpha1\nkind: SealConfig\n"), bytes.Repeat([]byte("# a comment\n"), 5000)...)
	pod := NewForClient(fake.NewClientset(), Options{SealImage: "reg/kamino:1"}).sealPod(kamino.Node{Name: "n1"}, kamino.SealOrder{Run: "r1", Policy: policy})
	env := pod.Spec.Containers[0].Env
	if len(env) != 1 || env[0].Name != agentseal.PolicyEnv {
		t.Fatalf("the pod has %v", env)
	}
	got, err := agentseal.DecodePolicy(env[0].Value)
	if err != nil || !bytes.Equal(got, policy) {
		t.Errorf("%d bytes came as %d: %v", len(policy), len(got), err)
	}
	if _, err := agentseal.ParsePolicy(got); err != nil {
		t.Error(err)
	}
}
