package host

import (
	"fmt"
	"net"
	"os"
)

// Notify tells systemd that this service has started (sd_notify(3), READY=1), so that what waits
// for it goes on while the program still has something to do. Without systemd it does nothing.
func Notify() error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	// net understands "@NAME", an abstract socket, as systemd writes it.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("READY=1")); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
