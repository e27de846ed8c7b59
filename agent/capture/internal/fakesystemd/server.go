// Package fakesystemd serves a boot capture the way systemd's private socket does, so that the real
// systemd-analyze, systemctl and our own capture can be tested against any boot that can be thought
// of.
//
// It speaks as much D-Bus as those need: SASL EXTERNAL, Manager.ListUnits and ListUnitsByPatterns,
// Properties.Get and GetAll (https://dbus.freedesktop.org/doc/dbus-specification.html).
package fakesystemd

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"kamino.dev/kamino/boot"
)

// Server serves one boot at a time.
type Server struct {
	mu    sync.Mutex
	boot  *boot.Capture
	paths map[dbus.ObjectPath]*boot.Unit
}

const (
	managerPath  = dbus.ObjectPath("/org/freedesktop/systemd1")
	unitRoot     = "/org/freedesktop/systemd1/unit/"
	managerIface = "org.freedesktop.systemd1.Manager"
	unitIface    = "org.freedesktop.systemd1.Unit"
	serviceIface = "org.freedesktop.systemd1.Service"
)

// Set replaces the boot that is served from now on.
func (s *Server) Set(c *boot.Capture) {
	paths := make(map[dbus.ObjectPath]*boot.Unit, len(c.Units))
	for i := range c.Units {
		u := &c.Units[i]
		for _, n := range append([]string{u.ID}, u.Names...) {
			p := dbus.ObjectPath(unitRoot + systemd.PathBusEscape(n))
			if paths[p] == nil {
				paths[p] = u
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boot, s.paths = c, paths
}

// Serve answers connections until the listener is closed.
func (s *Server) Serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			// A client that hangs up in the middle is normal: systemd-analyze aborts on some boots.
			_ = s.talk(conn)
		}()
	}
}

func (s *Server) talk(conn net.Conn) error {
	r := bufio.NewReader(conn)
	if err := authenticate(r, conn); err != nil {
		return err
	}
	serial := uint32(0)
	for {
		msg, err := dbus.DecodeMessage(r)
		if err != nil {
			return err
		}
		if msg.Type != dbus.TypeMethodCall {
			continue
		}
		reply := s.answer(msg)
		if reply == nil || msg.Flags&dbus.FlagNoReplyExpected != 0 {
			continue
		}
		var out bytes.Buffer
		if err := reply.EncodeTo(&out, binary.LittleEndian); err != nil {
			return err
		}
		serial++
		binary.LittleEndian.PutUint32(out.Bytes()[serialOffset:], serial)
		if _, err := conn.Write(out.Bytes()); err != nil {
			return err
		}
	}
}

// authenticate accepts everybody; libsystemd sends all its lines at once, godbus asks for the
// mechanisms first.
func authenticate(r *bufio.Reader, w io.Writer) error {
	if _, err := r.ReadByte(); err != nil {
		return err
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		reply := ""
		switch f := strings.Fields(line); {
		case len(f) == 0:
			reply = "ERROR"
		case f[0] == "BEGIN":
			return nil
		case f[0] == "AUTH" && len(f) == 1:
			reply = "REJECTED EXTERNAL"
		case f[0] == "AUTH" && len(f) == 2:
			reply = "DATA"
		case f[0] == "AUTH" || f[0] == "DATA":
			reply = "OK 0123456789abcdef0123456789abcdef"
		default:
			reply = "ERROR"
		}
		if _, err := io.WriteString(w, reply+"\r\n"); err != nil {
			return err
		}
	}
}

// serialOffset is where a message's serial number stands: godbus sets it on its own connections
// only.
const serialOffset = 8

func (s *Server) answer(call *dbus.Message) *dbus.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, _ := call.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	member, _ := call.Headers[dbus.FieldMember].Value().(string)
	switch member {
	case "ListUnits", "ListUnitsByPatterns":
		return s.reply(call, s.list())
	case "GetAll":
		iface, _ := call.Body[0].(string)
		props, ok := s.properties(path, iface)
		if !ok {
			return s.fail(call, "org.freedesktop.DBus.Error.UnknownObject", fmt.Sprintf("no object %s", path))
		}
		return s.reply(call, props)
	case "Get":
		iface, _ := call.Body[0].(string)
		name, _ := call.Body[1].(string)
		props, ok := s.properties(path, iface)
		if !ok {
			return s.fail(call, "org.freedesktop.systemd1.NoSuchUnit", fmt.Sprintf("no object %s", path))
		}
		v, ok := props[name]
		if !ok {
			return s.fail(call, "org.freedesktop.DBus.Error.UnknownProperty", fmt.Sprintf("no property %s", name))
		}
		return s.reply(call, v)
	}
	return s.fail(call, "org.freedesktop.DBus.Error.UnknownMethod", "no method "+member)
}

func (s *Server) reply(call *dbus.Message, body any) *dbus.Message {
	m := &dbus.Message{Type: dbus.TypeMethodReply, Flags: dbus.FlagNoReplyExpected, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
		dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf(body)),
	}, Body: []any{body}}
	return m
}

func (s *Server) fail(call *dbus.Message, name, text string) *dbus.Message {
	m := s.reply(call, text)
	m.Type = dbus.TypeError
	m.Headers[dbus.FieldErrorName] = dbus.MakeVariant(name)
	return m
}
