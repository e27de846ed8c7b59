package crash

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/kube"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/controlplane"
	"kamino.dev/kamino/lab/pki"
)

// Credentials of the only service principal that a world's cloud knows.
const (
	clientID     = "22222222-2222-2222-2222-222222222222"
	clientSecret = "kamino-crash" // opens nothing but an emulator on loopback
	sealImage    = lab.SealImage
	sealPrefix   = "kamino-seal-"
	surveyPrefix = "kamino-inventory-"
	listPrefix   = "kamino-packages-"
)

// Station is a kube-apiserver with its etcd, and the two proxies through which
// processes reach it and the cloud. Worlds use it one after the other.
type Station struct {
	dir         string
	kamino      string // program to run as processes; "" runs the engine in goroutines
	cp          *controlplane.ControlPlane
	admin       kubernetes.Interface
	leases      *kube.Cluster // an administrator's, to read leases and to make pods
	protos      dynamic.ResourceInterface
	toServer    http.RoundTripper // from the proxy to kube-apiserver
	toCloud     http.RoundTripper // from processes to the proxies
	toKube      http.RoundTripper
	kubeURL     string
	serverURL   *url.URL
	cloudURL    string
	environment map[string]string // how processes find the cloud
	world       atomic.Pointer[World]
	servers     []*http.Server
	scenario    emulator.Scenario
	tamper      func(*engine.Engine) // what a test does to every engine; nil nothing
}

// NewStation starts a control plane and the proxies in a directory. binary is
// kamino-lab. ctx bounds the start only.
func NewStation(ctx context.Context, dir, binary string) (*Station, error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Binary: binary, Bare: true})
	if err != nil {
		return nil, err
	}
	s := &Station{dir: dir, cp: cp, scenario: emulator.Scenario{}.Defaults()}
	if err := s.open(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("open station: %w", err)
	}
	return s, nil
}

// Close ends proxies and control plane.
func (s *Station) Close() {
	for _, server := range s.servers {
		_ = server.Close() // nothing to flush
	}
	s.cp.Stop()
}

func (s *Station) open(ctx context.Context) error {
	config := s.cp.RESTConfig()
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf",
		"application/vnd.kubernetes.protobuf,application/json"
	var err error
	if s.admin, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if s.leases, err = kube.New(config, kube.Options{SealImage: sealImage}); err != nil {
		return err
	}
	if err := s.kind(ctx); err != nil {
		return err
	}
	if s.toServer, err = rest.TransportFor(s.cp.RESTConfig()); err != nil {
		return fmt.Errorf("make transport: %w", err)
	}
	if s.serverURL, err = url.Parse(s.cp.URL); err != nil {
		return fmt.Errorf("parse address of the API server: %w", err)
	}
	if err := s.serveKube(); err != nil {
		return err
	}
	if err := s.serveCloud(); err != nil {
		return err
	}
	if err := s.serveClock(); err != nil {
		return err
	}
	return s.serviceAccounts(ctx)
}

// serviceAccounts makes what a controller would: without them no pod is admitted. Then it prepares
// the cluster.
func (s *Station) serviceAccounts(ctx context.Context) error {
	for _, namespace := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault, kamino.SystemNamespace} {
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if _, err := s.admin.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %s: %w", namespace, err)
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		_, err := s.admin.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create service account of %s: %w", namespace, err)
		}
	}
	return errors.Join(lab.Prepare(ctx, s.cp.RESTConfig(), sealImage), s.changePods(ctx))
}

func (s *Station) serveKube() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the proxy: %w", err)
	}
	s.kubeURL = "http://" + listener.Addr().String()
	s.toKube = &http.Transport{MaxIdleConnsPerHost: 4}
	s.serve(listener, Kubernetes)
	kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"crash",
"clusters":[{"name":"crash","cluster":{"server":%q}}],"users":[{"name":"crash","user":{}}],
"contexts":[{"name":"crash","context":{"cluster":"crash","user":"crash"}}]}`, s.kubeURL)
	return s.write("proxy.kubeconfig", []byte(kubeconfig))
}

func (s *Station) serveCloud() error {
	authority, err := pki.NewAuthority("kamino-crash-azure")
	if err != nil {
		return err
	}
	pair, err := authority.Issue(pki.Leaf{CommonName: "localhost", Hosts: []string{"localhost", "127.0.0.1"}})
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return fmt.Errorf("load certificate of the cloud: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the cloud: %w", err)
	}
	s.cloudURL = "https://localhost:" + strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM)
	s.toCloud = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 4}
	s.serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}), Cloud)
	stack, err := json.Marshal(map[string]string{
		"name": "AzureStackCloud", "resourceManagerEndpoint": s.cloudURL + "/", "activeDirectoryEndpoint": s.cloudURL + "/adfs",
		"serviceManagementEndpoint": s.cloudURL + "/", "tokenAudience": s.cloudURL + "/",
	})
	if err != nil {
		return fmt.Errorf("encode azurestackcloud.json: %w", err)
	}
	if err := errors.Join(s.write("azurestackcloud.json", stack), s.write("ca.pem", authority.PEM)); err != nil {
		return err
	}
	s.environment = map[string]string{
		"AZURE_ENVIRONMENT": "AzureStackCloud", "AZURE_ENVIRONMENT_FILEPATH": filepath.Join(s.dir, "azurestackcloud.json"),
		"AZURE_TENANT_ID": s.scenario.Tenant, "AZURE_CLIENT_ID": clientID, "AZURE_CLIENT_SECRET": clientSecret,
		"SSL_CERT_FILE": filepath.Join(s.dir, "ca.pem"), "KUBECONFIG": filepath.Join(s.dir, "proxy.kubeconfig"),
		"NO_PROXY": "localhost,127.0.0.1",
	}
	for name, value := range awsEnvironment("https://aws.invalid") { // goroutines find their station by toStation
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

func (s *Station) write(name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(s.dir, name), content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// serve answers one side's calls on a listener.
func (s *Station) serve(listener net.Listener, side Side) {
	server := &http.Server{
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.proxy(w, r, side) }),
		ErrorLog: log.New(discard{}, "", 0), // connections that are cut are the point
	}
	s.servers = append(s.servers, server)
	go func() { _ = server.Serve(listener) }() // ends with Close
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// proxy passes a call of a process through the world, which may strike it.
func (s *Station) proxy(w http.ResponseWriter, r *http.Request, side Side) {
	world := s.world.Load()
	var p *Process
	if world != nil {
		p = world.process(r.Header.Get(processHeader))
	}
	if p == nil {
		http.Error(w, "no process is known that calls", http.StatusServiceUnavailable)
		return
	}
	r.Header.Del(processHeader)
	answer := world.handle(p, newCall(p, side, r, readBody(r)), r)
	if answer == nil {
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}
	answer.send(w)
}
