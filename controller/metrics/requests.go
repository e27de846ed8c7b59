package metrics

import "github.com/prometheus/client_golang/prometheus"

// Requests counts the requests to the cloud. Those to the API server client-go counts, as
// rest_client_requests_total.
type Requests struct{ *prometheus.CounterVec }

// NewRequests has to be registered.
func NewRequests() Requests {
	return Requests{prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kamino_cloud_requests_total",
		Help: "Requests to the cloud that ended, by what was called and the status code, or error where no answer came."},
		[]string{"call", "code"})}
}

// Heard counts one.
func (r Requests) Heard(call, code string) { r.WithLabelValues(call, code).Inc() }
