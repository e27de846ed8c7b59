package emulator

import (
	"net/http"
	"strings"
	"time"
)

// bucket is what a caller may still do of one action.
type bucket struct {
	tokens float64
	at     time.Time
}

// rate is the size of a bucket and what flows into it in a second
// (https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html).
type rate struct{ most, perSecond float64 }

func rateOf(c *call) rate {
	switch c.action {
	case "RunInstances", "StartInstances":
		return rate{5, 2}
	case "CreateSnapshot", "DeleteSnapshot", "DeregisterImage", "CreateLaunchTemplateVersion", "ModifyLaunchTemplate", "TerminateInstances":
		return rate{100, 5}
	case "CreateTags":
		return rate{100, 10}
	case "DescribeInstances", "DescribeInstanceStatus", "DescribeSnapshots", "DescribeVolumes":
		if c.in["Filter"] == nil && c.in["MaxResults"] == nil {
			return rate{50, 10}
		}
	}
	if c.reads() {
		return rate{100, 20}
	}
	return rate{50, 5}
}

// throttle refuses calls above the rate of their action. Auto Scaling and SSM publish no rates;
// those of EC2's other calls stand for them (assumed, unverified on real AWS).
func (s *Server) throttle(c *call) *apiError {
	if !s.Throttle {
		return nil
	}
	r := rateOf(c)
	b := s.buckets[c.name()]
	if b == nil {
		b = &bucket{tokens: r.most, at: c.now}
		s.buckets[c.name()] = b
	}
	b.tokens = min(r.most, b.tokens+c.now.Sub(b.at).Seconds()*r.perSecond)
	b.at = c.now
	if b.tokens < 1 {
		return throttled(c.service)
	}
	b.tokens--
	return nil
}

func throttled(service string) *apiError {
	if service == ec2 {
		return &apiError{Status: http.StatusServiceUnavailable, Code: "RequestLimitExceeded", Message: "Request limit exceeded."}
	}
	code := "Throttling"
	if strings.HasPrefix(service, ssm) {
		code = "ThrottlingException"
	}
	return refuse(code, "Rate exceeded")
}
