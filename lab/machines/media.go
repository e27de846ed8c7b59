package machines

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"fmt"
	"io"

	"kamino.dev/kamino/azure/emulator"
)

// ovfEnvironment is ovf-env.xml of the provisioning CD, with the elements that
// cloud-init's Azure datasource and waagent read.
func ovfEnvironment(i emulator.Instance, user string) []byte {
	custom := ""
	if i.CustomData != "" {
		custom = "<ns1:CustomData>" + i.CustomData + "</ns1:CustomData>"
	}
	return fmt.Appendf(nil, `<?xml version="1.0" encoding="utf-8"?>
<ns0:Environment xmlns="http://schemas.dmtf.org/ovf/environment/1" xmlns:ns0="http://schemas.dmtf.org/ovf/environment/1" xmlns:ns1="http://schemas.microsoft.com/windowsazure" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
  <ns1:ProvisioningSection>
    <ns1:Version>1.0</ns1:Version>
    <ns1:LinuxProvisioningConfigurationSet>
      <ns1:ConfigurationSetType>LinuxProvisioningConfiguration</ns1:ConfigurationSetType>
      <ns1:UserName>%s</ns1:UserName>
      <ns1:DisableSshPasswordAuthentication>true</ns1:DisableSshPasswordAuthentication>
      <ns1:HostName>%s</ns1:HostName>
      %s
    </ns1:LinuxProvisioningConfigurationSet>
  </ns1:ProvisioningSection>
  <ns1:PlatformSettingsSection>
    <ns1:Version>1.0</ns1:Version>
    <ns1:PlatformSettings>
      <ns1:ProvisionGuestAgent>true</ns1:ProvisionGuestAgent>
      <ns1:PreprovisionedVm>false</ns1:PreprovisionedVm>
    </ns1:PlatformSettings>
  </ns1:PlatformSettingsSection>
</ns0:Environment>
`, escape(user), escape(i.ComputerName), custom)
}

func escape(text string) string {
	var out bytes.Buffer
	_ = xml.EscapeText(&out, []byte(text)) // a buffer takes everything
	return out.String()
}

// sector of a CD.
const sector = 2048

// writeCD writes an ISO 9660 image (ECMA-119) with one file in its root. name is
// in capitals; Linux shows it in small letters. That is all a provisioning CD needs.
func writeCD(w io.Writer, label, name string, data []byte) error {
	const system, terminator, pathsLE, pathsBE, root, content = 16, 17, 18, 19, 20, 21
	blocks := content + (len(data)+sector-1)/sector
	image := make([]byte, blocks*sector)
	at := func(n int) []byte { return image[n*sector:] }

	rootEntry := cdEntry("\x00", root, sector, true)
	pvd := at(system)
	copy(pvd, "\x01CD001\x01")
	copy(pvd[8:72], fmt.Sprintf("%-32s%-32s", "", label))
	cdBoth32(pvd[80:], uint32(blocks))
	cdBoth16(pvd[120:], 1)
	cdBoth16(pvd[124:], 1)
	cdBoth16(pvd[128:], sector)
	cdBoth32(pvd[132:], 10)
	binary.LittleEndian.PutUint32(pvd[140:], pathsLE)
	binary.BigEndian.PutUint32(pvd[148:], pathsBE)
	copy(pvd[156:], rootEntry)
	for i := 190; i < 813; i++ {
		pvd[i] = ' '
	}
	for _, date := range []int{813, 830, 847, 864} {
		copy(pvd[date:], "0000000000000000\x00")
	}
	pvd[881] = 1
	copy(at(terminator), "\xffCD001\x01")

	copy(at(pathsLE), []byte{1, 0, root, 0, 0, 0, 1, 0, 0, 0})
	copy(at(pathsBE), []byte{1, 0, 0, 0, 0, root, 0, 1, 0, 0})
	entries := append(append(rootEntry, cdEntry("\x01", root, sector, true)...), cdEntry(name+";1", content, len(data), false)...)
	copy(at(root), entries)
	copy(at(content), data)
	_, err := w.Write(image)
	return err
}

// cdEntry is a directory record (ECMA-119, 9.1).
func cdEntry(name string, block, size int, dir bool) []byte {
	length := 33 + len(name)
	length += length % 2
	e := make([]byte, length)
	e[0] = byte(length)
	cdBoth32(e[2:], uint32(block))
	cdBoth32(e[10:], uint32(size))
	copy(e[18:], []byte{100, 1, 1, 0, 0, 0, 0}) // 2000-01-01
	if dir {
		e[25] = 2
	}
	cdBoth16(e[28:], 1)
	e[32] = byte(len(name))
	copy(e[33:], name)
	return e
}

func cdBoth16(b []byte, n uint16) {
	binary.LittleEndian.PutUint16(b, n)
	binary.BigEndian.PutUint16(b[2:], n)
}

func cdBoth32(b []byte, n uint32) {
	binary.LittleEndian.PutUint32(b, n)
	binary.BigEndian.PutUint32(b[4:], n)
}
