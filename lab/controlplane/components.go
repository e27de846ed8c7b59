package controlplane

import (
	"context"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
)

// component is one process of the control plane: its flags, and how to know
// that the next one may be started (nil: at once).
type component struct {
	name  string
	args  func(*layout) []string
	ready func(context.Context, kubernetes.Interface) error
	bare  bool // part of a bare control plane
}

// components in the order of their start. etcd has no check of its own: the API
// server retries until etcd answers, and is not ready before.
var components = []component{
	{name: "etcd", args: etcdArgs, bare: true},
	{name: "kube-apiserver", args: apiserverArgs, ready: apiserverReady, bare: true},
	{name: "kube-controller-manager", args: controllerManagerArgs},
	{name: "kube-scheduler", args: schedulerArgs},
}

func etcdArgs(l *layout) []string {
	client, peer := "http://127.0.0.1:"+strconv.Itoa(l.etcdPort), "http://127.0.0.1:"+strconv.Itoa(l.peerPort)
	return []string{
		"--name=lab",
		"--data-dir=" + l.path("etcd"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=lab=" + peer,
		"--log-level=warn",
		// A lab does not survive a power cut, so it need not pay for one.
		"--unsafe-no-fsync",
	}
}

func apiserverArgs(l *layout) []string {
	return []string{
		"--etcd-servers=http://127.0.0.1:" + strconv.Itoa(l.etcdPort),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(l.apiPort),
		// A loopback address cannot be the endpoint of the kubernetes Service, and nobody here
		// needs it.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/16",
		"--tls-cert-file=" + l.path("pki", "apiserver.crt"),
		"--tls-private-key-file=" + l.path("pki", "apiserver.key"),
		"--client-ca-file=" + l.path("pki", "ca.crt"),
		"--kubelet-client-certificate=" + l.path("pki", "apiserver-kubelet.crt"),
		"--kubelet-client-key=" + l.path("pki", "apiserver-kubelet.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + l.path("pki", "service-account.crt"),
		"--service-account-signing-key-file=" + l.path("pki", "service-account.key"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth=true",
		"--allow-privileged=true", // the seal pod is privileged
		"--profiling=false",
		"--event-ttl=1h",
	}
}

func apiserverReady(ctx context.Context, client kubernetes.Interface) error {
	return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

func controllerManagerArgs(l *layout) []string {
	kubeconfig := l.path("pki", "controller-manager.kubeconfig")
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--secure-port=0", // nobody scrapes it, and a serving certificate costs a second
		"--leader-elect=false",
		"--profiling=false",
		// The default of 20 a second makes it wait five seconds for its own service accounts'
		// tokens.
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		// All that are on by default and the two of bootstrap tokens; those for clouds have no
		// cloud and stay off.
		"--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + l.path("pki", "service-account.key"),
		"--root-ca-file=" + l.path("pki", "ca.crt"),
		"--cluster-signing-cert-file=" + l.path("pki", "ca.crt"),
		"--cluster-signing-key-file=" + l.path("pki", "ca.key"),
		"--node-monitor-grace-period=" + l.nodeGrace.String(),
		"--node-monitor-period=" + min(time.Second, l.nodeGrace/4).String(),
	}
	if l.podCIDR != "" {
		args = append(args, "--allocate-node-cidrs=true", "--cluster-cidr="+l.podCIDR)
	}
	return args
}

func schedulerArgs(l *layout) []string {
	kubeconfig := l.path("pki", "scheduler.kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--secure-port=0",
		"--leader-elect=false",
		"--profiling=false",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
	}
}
