package aws_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// TestChosenWhileWithdrawn: a person puts an image into the parameter while Kamino takes the one
// back that was there, after Kamino has read it and before it writes.
func TestChosenWhileWithdrawn(t *testing.T) {
	var persons, parameter string
	armed, lists := false, 0
	c := begin(t, setting{before: func(c *cloud, action string) {
		if !armed || action != "DescribeImages" {
			return
		}
		if lists++; lists != 2 { // the list of versions from which the successor is taken
			return
		}
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"Name":"`+parameter+`","Value":"`+persons+`","Type":"String","DataType":"aws:ec2:image","Overwrite":true}`))
		r.Header.Set("Content-Type", "application/x-amz-json-1.1")
		r.Header.Set("X-Amz-Target", "AmazonSSM.PutParameter")
		r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+key+"/20261120/eu-central-1/ssm/aws4_request, SignedHeaders=host, Signature=0")
		answer := httptest.NewRecorder()
		if c.server.ServeHTTP(answer, r); answer.Code != http.StatusOK {
			t.Errorf("%s", answer.Body)
		}
		c.clock.Advance(20 * time.Second) // until SSM has looked for the image
	}})
	v := c.build("2026.1.1", "2026.1.2", "2026.1.3")
	c.promote(kamino.Target{Version: v[1].Name, Reference: kamino.ByDefinition})
	pool := c.pool()
	persons, parameter = v[2].ID, "/kamino/one/blue/image"
	if named, err := c.Find(t.Context(), pool, kamino.KindParameter, ""); err != nil || len(named) != 1 {
		t.Fatal(named, err)
	} else {
		parameter = named[0].Name
	}
	armed = true
	err := c.Withdraw(t.Context(), pool, v[1].Name, kamino.Bad{Reason: "never Ready"})
	if lists < 2 {
		t.Fatalf("%d lists", lists)
	}
	c.clock.Advance(time.Minute)
	if m := c.grow(); m.Image != persons {
		t.Errorf("the next instance boots from %s, not from the person's %s; the withdrawal ended with %v (conflict: %t)", m.Image, persons, err, errors.Is(err, kamino.ErrConflict))
	}
}
