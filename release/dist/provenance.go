package dist

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// What a provenance is: an in-toto statement with SLSA's predicate
// (https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md, https://slsa.dev/spec/v1.0/provenance),
// in an envelope that is signed (https://github.com/secure-systems-lab/dsse).
const (
	statementType  = "https://in-toto.io/Statement/v1"
	predicateType  = "https://slsa.dev/provenance/v1"
	payloadType    = "application/vnd.in-toto+json"
	provenanceFile = "provenance.intoto.json"
	// buildType says how parameters are to be read: with "make release", by docs/release.md.
	buildType = "https://kamino.dev/kamino/docs/release.md"
	// localBuilder is whoever types make release: no hosted builder vouches for it, and SLSA's
	// level is 1 at the most.
	localBuilder = "https://kamino.dev/kamino/docs/release.md#who-builds"
)

type (
	statement struct {
		Type          string     `json:"_type"`
		Subject       []resource `json:"subject"`
		PredicateType string     `json:"predicateType"`
		Predicate     predicate  `json:"predicate"`
	}
	resource struct {
		Name   string            `json:"name,omitempty"`
		URI    string            `json:"uri,omitempty"`
		Digest map[string]string `json:"digest"`
	}
	predicate struct {
		BuildDefinition definition `json:"buildDefinition"`
		RunDetails      details    `json:"runDetails"`
	}
	definition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []resource        `json:"resolvedDependencies"`
	}
	details struct {
		Builder builder `json:"builder"`
	}
	builder struct {
		ID      string            `json:"id"`
		Version map[string]string `json:"version"`
	}
)

// provenance says of every file of the release from which commit, with which Go and for which
// registry it was made. The modules stand in the lists of contents, which are among the files.
func (r *Release) provenance(ctx context.Context) error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	s := statement{Type: statementType, PredicateType: predicateType}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s.Subject = append(s.Subject, resource{Name: name, Digest: map[string]string{"sha256": sums[name]}})
	}
	for _, program := range []string{agent, kamino} { // as a registry names them
		s.Subject = append(s.Subject, resource{Name: r.Registry + "/" + program,
			Digest: map[string]string{"sha256": r.images[program].Hex}})
	}
	_, goVersion, err := r.contents(r.binaries[agent+" "+r.linux()[0].String()])
	if err != nil {
		return err
	}
	s.Predicate = predicate{
		BuildDefinition: definition{
			BuildType:          buildType,
			ExternalParameters: map[string]string{"version": r.Version, "registry": r.Registry},
			ResolvedDependencies: []resource{{URI: "git+https://kamino.dev/kamino@v" + r.Version,
				Digest: map[string]string{"gitCommit": r.Commit}}},
		},
		RunDetails: details{Builder: builder{ID: localBuilder, Version: map[string]string{"go": goVersion}}},
	}
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if r.Key != nil {
		if body, err = envelope(ctx, body, signer{r.Key}); err != nil {
			return err
		}
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, body, "", "  "); err != nil {
		return err
	}
	return r.write(provenanceFile, append(pretty.Bytes(), '\n'))
}

func envelope(ctx context.Context, body []byte, key signer) ([]byte, error) {
	s, err := dsse.NewEnvelopeSigner(key)
	if err != nil {
		return nil, err
	}
	e, err := s.SignPayload(ctx, payloadType, body)
	if err != nil {
		return nil, err
	}
	return json.Marshal(e)
}
