package scan

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Host names that are every machine's; looking for them would find them everywhere.
var commonHosts = []string{"localhost", "debian", "ubuntu", "linux", "azurelinux", "ip6-localhost", "host", "node",
	"server", "master", "worker"}

func factNeedles(f Facts) (needles []needle, skipped []string) {
	add := func(kind, text string, boundary func(byte) bool) {
		check := func(data []byte, at int) []byte {
			if at > 0 && boundary(data[at-1]) || at+len(text) < len(data) && boundary(data[at+len(text)]) {
				return nil
			}
			return data[at : at+len(text)]
		}
		needles = append(needles, needle{kind, []byte(text), check, false})
	}
	if host, _, _ := strings.Cut(f.Host, "."); host != "" {
		if len(host) < 6 || slices.Contains(commonHosts, strings.ToLower(host)) {
			skipped = append(skipped, fmt.Sprintf("host name %q: too short or too common to tell", host))
		} else {
			for _, form := range distinct(host, strings.ToLower(host), strings.ToUpper(host)) {
				add("donor-host", form, isWord)
			}
		}
	}
	for _, a := range f.Addresses {
		if len(a) < 7 || strings.HasPrefix(a, "127.") {
			continue
		}
		for _, form := range addressForms(a) {
			needles = append(needles, needle{"donor-address", []byte(form), aloneAs(form), false})
		}
	}
	if id := strings.ToLower(strings.TrimSpace(f.VMID)); len(id) == 36 {
		for _, form := range []string{id, Swapped(id)} {
			for _, form := range distinct(form, strings.ToUpper(form), strings.ReplaceAll(form, "-", "")) {
				add("donor-vm-id", form, isHex)
			}
		}
	}
	if id := strings.ToLower(strings.TrimSpace(f.MachineID)); len(id) == 32 {
		add("donor-machine-id", id, isHex)
	}
	for _, a := range f.MACs {
		mac, err := net.ParseMAC(a)
		if err != nil || len(mac) != 6 || monotonous(hex.EncodeToString(mac)) {
			continue
		}
		for _, form := range distinct(mac.String(), strings.ReplaceAll(mac.String(), ":", "-")) {
			add("donor-mac", form, isHex)
			add("donor-mac", strings.ToUpper(form), isHex)
		}
		add("donor-address", interfaceID(mac), isHex)
	}
	return needles, skipped
}

// aloneAs checks that an address stands by itself: 10.0.0.7 is not in 110.0.0.7, 10.0.0.70 or
// 10.0.0.7.8, but it is in 10.0.0.7.json.
func aloneAs(form string) func(data []byte, at int) []byte {
	joins := func(c byte) bool { return isHex(c) || c == ':' && strings.Contains(form, ":") }
	return func(data []byte, at int) []byte {
		end := at + len(form)
		if at > 0 && (joins(data[at-1]) || data[at-1] == '.') || end < len(data) && joins(data[end]) {
			return nil
		}
		if end+1 < len(data) && data[end] == '.' && data[end+1] >= '0' && data[end+1] <= '9' {
			return nil
		}
		return data[at:end]
	}
}

// addressForms are the ways in which an address is written: IPv6 shortened, with every group, with
// every digit (RFC 5952 section 2), an IPv4 address also with hyphens, as in the names that clouds
// give.
func addressForms(a string) []string {
	ip, err := netip.ParseAddr(a)
	if err != nil {
		return []string{a}
	}
	if ip.Is4() {
		return []string{ip.String(), strings.ReplaceAll(ip.String(), ".", "-")}
	}
	var groups []string
	for g := range strings.SplitSeq(ip.WithZone("").StringExpanded(), ":") {
		if g = strings.TrimLeft(g, "0"); g == "" {
			g = "0"
		}
		groups = append(groups, g)
	}
	full := strings.Join(groups, ":")
	return distinct(a, ip.String(), ip.StringExpanded(), full, strings.ToUpper(ip.String()), strings.ToUpper(ip.StringExpanded()),
		strings.ToUpper(full))
}

// interfaceID is the second half of the addresses that a network card gives itself (RFC 4291
// appendix A).
func interfaceID(mac net.HardwareAddr) string {
	return fmt.Sprintf("%x:%x:%x:%x", uint(mac[0]^2)<<8|uint(mac[1]), uint(mac[2])<<8|0xff, 0xfe00|uint(mac[3]),
		uint(mac[4])<<8|uint(mac[5]))
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_'
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func distinct(all ...string) (out []string) {
	for _, s := range all {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// Swapped is a UUID with the bytes of its first three groups reversed: SMBIOS before 2.6 and
// Azure's generation 1 machines store them little-endian. Anything that is not a UUID comes back
// unchanged.
func Swapped(id string) string {
	if len(id) != 36 {
		return id
	}
	pair := func(at ...int) (s string) {
		for _, i := range at {
			s += id[i : i+2]
		}
		return s
	}
	return pair(6, 4, 2, 0) + "-" + pair(11, 9) + "-" + pair(16, 14) + id[18:]
}
