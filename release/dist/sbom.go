package dist

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sboms list what each program is linked with, in CycloneDX 1.6
// (https://cyclonedx.org/docs/1.6/json/): what the program itself says, with licences. One is of
// the program in the archive, the packages and the image alike.
func (r *Release) sboms(context.Context) error {
	for _, a := range []struct {
		program string
		targets []Target
	}{{kamino, r.Targets}, {agent, r.linux()}} {
		for _, t := range a.targets {
			if err := r.sbom(a.program, t); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Release) sbom(program string, t Target) error {
	file := r.binaries[program+" "+t.String()]
	body, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	linked, version, err := r.contents(file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	root := "pkg:golang/kamino.dev/kamino@v" + r.Version + "#cmd/" + program
	bom := cdx.NewBOM()
	// Of the same program always the same number (RFC 9562, section 5.8).
	id := hex.EncodeToString(sum[:])
	bom.SerialNumber = fmt.Sprintf("urn:uuid:%s-%s-8%s-8%s-%s", id[:8], id[8:12], id[12:15], id[15:18], id[18:30])
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.Time.Format("2006-01-02T15:04:05Z"),
		Component: &cdx.Component{
			BOMRef: root, Type: cdx.ComponentTypeApplication, Name: program, Version: r.Version, PackageURL: root,
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		},
	}
	components := []cdx.Component{{
		BOMRef: "pkg:golang/std", Type: cdx.ComponentTypeLibrary, Name: "std", Version: version, PackageURL: "pkg:golang/std@" + version,
		Licenses: &cdx.Licenses{{Expression: "BSD-3-Clause"}},
	}}
	for _, m := range linked {
		purl := "pkg:golang/" + m.Path + "@" + m.Version
		components = append(components, cdx.Component{
			BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl,
			Licenses:   &cdx.Licenses{{Expression: m.License}},
			Properties: &[]cdx.Property{{Name: "go:sum", Value: m.Sum}},
		})
	}
	bom.Components = &components
	var out bytes.Buffer
	e := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON)
	e.SetPretty(true)
	if err := e.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return err
	}
	return r.write(r.base(program, t)+".cdx.json", out.Bytes())
}
