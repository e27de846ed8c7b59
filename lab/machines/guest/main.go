// Command guest is what the lab's own container images run: "pause" holds a pod's
// namespaces, "serve" is a workload that says which pod and node answered, and
// "seal" stands in for an agent that switches the donor off without sealing it.
package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
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
	}
	if verb == "seal" {
		syscall.Sync()
		return syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	}
	return errors.New("no such verb: pause, serve or seal")
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
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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
