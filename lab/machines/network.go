package machines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/containers/gvisor-tap-vsock/pkg/types"
	"github.com/containers/gvisor-tap-vsock/pkg/virtualnetwork"
	"github.com/sirupsen/logrus"
)

// Addresses of the virtual network. The two of Azure are known to every VM there
// (https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16).
const (
	subnet       = "10.1.0.0/24"
	gateway      = "10.1.0.1"   // router, DNS, package repository, registry
	hostAddress  = "10.1.0.254" // this machine's loopback
	imdsAddress  = "169.254.169.254"
	wireAddress  = "168.63.129.16"
	repoPort     = "8080"
	registryPort = "5000"
	firstSlot    = 10
	lastSlot     = 250
)

// network is one Ethernet in this process. Machines join it by a unix socket.
type network struct {
	dir    string
	net    *virtualnetwork.VirtualNetwork
	logger *slog.Logger
	ctx    context.Context
	end    context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	slots   int                     // given so far; a number is never given twice
	byAddr  map[string]http.Handler // what an address sees of the platform
	servers []*http.Server
}

// port is a machine's place in the network.
type port struct {
	MAC     string
	Address netip.Prefix
	Socket  string // unix socket that QEMU connects to
	listen  net.Listener
}

// newNetwork starts the network; dir is for sockets.
func newNetwork(dir string, logger *slog.Logger) (*network, error) {
	logrus.SetOutput(io.Discard) // of gvisor-tap-vsock, which knows no other logger
	leases := map[string]string{}
	for n := firstSlot; n <= lastSlot; n++ {
		mac, address := slot(n)
		leases[address.Addr().String()] = mac
	}
	vn, err := virtualnetwork.New(&types.Configuration{
		MTU: 1500, Subnet: subnet, GatewayIP: gateway, GatewayMacAddress: "5a:94:ef:e4:0c:ee",
		GatewayVirtualIPs: []string{hostAddress, imdsAddress, wireAddress},
		NAT:               map[string]string{hostAddress: "127.0.0.1"},
		DHCPStaticLeases:  leases,
		// An empty list makes an empty option, on which cloud-init 22.4 stumbles.
		DNSSearchDomains: []string{"lab.internal"},
	})
	if err != nil {
		return nil, fmt.Errorf("make virtual network: %w", err)
	}
	ctx, end := context.WithCancel(context.Background()) // close ends it
	n := &network{dir: dir, net: vn, logger: logger, ctx: ctx, end: end, byAddr: map[string]http.Handler{}}
	platform := http.HandlerFunc(n.platform)
	for _, address := range []string{imdsAddress + ":80", wireAddress + ":80", wireAddress + ":32526"} {
		if err := n.serve(address, platform); err != nil {
			n.close()
			return nil, err
		}
	}
	return n, nil
}

// slot n has Microsoft's vendor prefix, as network cards on Azure do.
func slot(n int) (mac string, address netip.Prefix) {
	return fmt.Sprintf("00:22:48:01:00:%02x", n), netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}), 24)
}

// serve answers HTTP at an address of the virtual network.
func (n *network) serve(address string, handler http.Handler) error {
	listener, err := n.net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s of the virtual network: %w", address, err)
	}
	server := &http.Server{Handler: handler, ErrorLog: slog.NewLogLogger(n.logger.Handler(), slog.LevelDebug)}
	n.mu.Lock()
	n.servers = append(n.servers, server)
	n.mu.Unlock()
	n.work.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) && n.ctx.Err() == nil {
			n.logger.Error("service of the virtual network ended", "address", address, "error", err)
		}
	})
	return nil
}

// platform is IMDS and WireServer: who asks is known by address, as on Azure.
func (n *network) platform(w http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	n.mu.Lock()
	handler := n.byAddr[host]
	n.mu.Unlock()
	if err != nil || handler == nil {
		http.Error(w, "no machine has this address", http.StatusForbidden)
		return
	}
	n.logger.Debug("platform asked", "by", host, "method", r.Method, "url", r.URL.String())
	handler.ServeHTTP(w, r)
}

// attach makes a port. platform answers what comes from it at Azure's addresses.
func (n *network) attach(platform http.Handler) (*port, error) {
	n.mu.Lock()
	number := firstSlot + n.slots
	n.slots++
	n.mu.Unlock()
	if number > lastSlot {
		return nil, fmt.Errorf("the virtual network has no address left: it had %d", lastSlot-firstSlot+1)
	}
	mac, address := slot(number)
	p := &port{MAC: mac, Address: address, Socket: filepath.Join(n.dir, fmt.Sprintf("net%d", number))}
	_ = os.Remove(p.Socket) // of a lab that was killed
	var err error
	if p.listen, err = net.Listen("unix", p.Socket); err != nil {
		return nil, fmt.Errorf("listen for a machine's network: %w", err)
	}
	n.mu.Lock()
	n.byAddr[address.Addr().String()] = platform
	n.mu.Unlock()
	n.work.Go(func() { n.accept(p) })
	return p, nil
}

// accept joins QEMU to the network, each time the machine is started.
func (n *network) accept(p *port) {
	for {
		conn, err := p.listen.Accept()
		if err != nil {
			return // detached
		}
		n.work.Go(func() {
			stop := context.AfterFunc(n.ctx, func() { conn.Close() })
			defer stop()
			if err := n.net.AcceptQemu(n.ctx, conn); err != nil && n.ctx.Err() == nil {
				n.logger.Debug("machine left the network", "mac", p.MAC, "error", err)
			}
		})
	}
}

func (n *network) detach(p *port) {
	n.mu.Lock()
	delete(n.byAddr, p.Address.Addr().String())
	n.mu.Unlock()
	_ = p.listen.Close() // and removes the socket
}

// dial reaches a machine from outside.
func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	return n.net.DialContextTCP(ctx, address)
}

func (n *network) close() {
	n.end()
	n.mu.Lock()
	servers := n.servers
	n.mu.Unlock()
	for _, s := range servers {
		_ = s.Close() // nothing to flush
	}
	n.work.Wait()
}
