package aws

import (
	"bytes"
	"io"
	"net/http"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
)

// whole sends requests whose bodies are its own. The SDK closes a body as soon as an answer begins;
// a transport that has not quite finished writing then takes the end of that body for an error, and
// closes the connection while the answer is read (smithy-go v1.28.8, safeWriteToReadCloser.WriteTo;
// seen on a busy machine).
type whole struct{ client sdk.HTTPClient }

// Do implements the SDK's HTTPClient.
func (w whole) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		return w.client.Do(r)
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	own := r.WithContext(r.Context())
	own.Body, own.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return w.client.Do(own)
}
