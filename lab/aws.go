package lab

import (
	"path/filepath"

	awsemulator "kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/docs"
	"kamino.dev/kamino/lab/nodes"
	"kamino.dev/kamino/lab/pki"
)

// OnAWS is the Options.On of a lab whose cloud is a Region of AWS.
const OnAWS = "aws"

// Keys of the lab's identities on AWS: the only ones that its cloud answers. Kamino's may do what
// the policies of docs/ grant, the operator's everything.
const (
	awsKey         = "AKIALABKAMINO"
	awsOperatorKey = "AKIALABOPERATOR"
	awsSecret      = "lab-secret" // signatures are not checked
)

// startAWS seeds the emulated Region and serves it over HTTPS.
func (l *Lab) startAWS(opts Options) (*pki.Authority, error) {
	granted := AWSRights()
	l.AWS = &awsemulator.Server{Speed: opts.Speed, Latencies: opts.AWSLatencies, Clock: opts.Clock, Identities: []awsemulator.Identity{
		{AccessKey: awsKey, Policy: &granted},
		{AccessKey: awsOperatorKey},
	}}
	if opts.ConfigureAWS != nil {
		opts.ConfigureAWS(l.AWS)
	}
	l.fleet = nodes.AWS(l.AWS)
	return l.serve(l.AWS, l.AWS.Close, func() { l.AWS.Seed(opts.Groups...) })
}

// AWSRights are the shipped policies, for the emulated account and the role of its nodes.
func AWSRights() awsemulator.Policy {
	return awsemulator.MustPolicy(docs.AWSPolicies("123456789012", "nodes")...)
}

// awsEnvironment is what clients of AWS need to find and trust the lab. AWS_CA_BUNDLE is for those
// in Python.
func (l *Lab) awsEnvironment() map[string]string {
	ca := filepath.Join(l.Dir, "ca.pem")
	return map[string]string{
		"KUBECONFIG": l.Kubeconfig,
		"POD_IMAGE":  l.SealImage,

		"AWS_ENDPOINT_URL":            l.Endpoint,
		"AWS_REGION":                  "eu-central-1",
		"AWS_DEFAULT_REGION":          "eu-central-1", // for aws
		"AWS_ACCESS_KEY_ID":           awsKey,
		"AWS_SECRET_ACCESS_KEY":       awsSecret,
		"AWS_CONFIG_FILE":             "/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
		"AWS_EC2_METADATA_DISABLED":   "true",
		"AWS_CA_BUNDLE":               ca,
		"SSL_CERT_FILE":               ca,
		"NO_PROXY":                    "localhost,127.0.0.1",
		"KAMINO_LAB_DIR":              l.Dir,
		"KAMINO_LAB_OPERATOR_ID":      awsOperatorKey, // an access key; its secret is AWS_SECRET_ACCESS_KEY too
	}
}
