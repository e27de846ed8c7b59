// Command guest is what the lab's own container images run: "pause" holds a pod's
// namespaces, "serve" is a workload that says which pod and node answered,
// "cni" gives its node the network configuration, as a CNI's daemon does, and
// "seal" stands in for an agent that switches the donor off without sealing it.
package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	verb := "pause"
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	if err := run(verb); err != nil {
		fmt.Fprintf(os.Stderr, "guest %s: %v\n", verb, err)
		os.Exit(1)
	}
}

func run(verb string) error {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	switch verb {
	case "pause":
		reap()
		<-end
		return nil
	case "serve":
		return serve(end)
	case "cni":
		if err := configure(os.Getenv("HOST_IP"), "/host/etc/cni/net.d"); err != nil {
			return err
		}
		<-end
		return nil
	}
	if verb == "seal" {
		syscall.Sync()
		return syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	}
	return errors.New("no such verb: pause, serve, cni or seal")
}

// reap takes the exit codes of orphans, which PID 1 of a pod inherits.
func reap() {
	children := make(chan os.Signal, 8)
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		for range children {
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
					break
				}
			}
		}
	}()
}

func serve(end <-chan os.Signal) error {
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "pod %s at %s on node %s\n", os.Getenv("POD_NAME"), os.Getenv("POD_IP"), os.Getenv("NODE_NAME"))
	})}
	go func() {
		<-end
		_ = server.Close() // the pod ends; nobody waits for its answers
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// configure writes a bridge network whose addresses follow from the host's, so
// that no two pods of the cluster share one: a host that ends in .7 has 10.244.7.0/24.
func configure(host, dir string) error {
	ip := net.ParseIP(host).To4()
	if ip == nil {
		return fmt.Errorf("HOST_IP is %q, not an IPv4 address", host)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "lab", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.%d.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, ip[3])
	// The runtime watches the directory: the file appears whole or not at all.
	temporary := filepath.Join(dir, ".10-lab.conflist")
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(dir, "10-lab.conflist"))
}
