package emulator

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/aws/emulator/wire"
	azure "kamino.dev/kamino/azure/emulator"
)

const key = "AKIATEST"

// world is one emulator behind real HTTP, on a virtual clock.
type world struct {
	*testing.T
	s     *Server
	clock *azure.VirtualClock
	url   string
}

func begin(t *testing.T, change func(*Server), groups ...Group) *world {
	t.Helper()
	w := &world{T: t, clock: azure.NewVirtualClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))}
	w.s = &Server{Clock: w.clock}
	if change != nil {
		change(w.s)
	}
	if groups == nil {
		groups = []Group{{Name: "blue", Count: 3, Min: 1}}
	}
	w.s.Seed(groups...)
	checked, _ := wire.Checked(t, w.s)
	server := httptest.NewServer(checked)
	t.Cleanup(func() { server.Close(); w.s.Close() })
	w.url = server.URL
	return w
}

// node is an element of a reply.
type node struct {
	XMLName xml.Name
	Text    string `xml:",chardata"`
	Nodes   []node `xml:",any"`
}

// all are the texts at a path of element names.
func (n node) all(path string) (out []string) {
	first, rest, more := strings.Cut(path, "/")
	for _, inner := range n.Nodes {
		if inner.XMLName.Local != first {
			continue
		}
		if more {
			out = append(out, inner.all(rest)...)
		} else {
			out = append(out, inner.Text)
		}
	}
	return out
}

func (n node) one(path string) string {
	found := n.all(path)
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

func (w *world) post(service, action string, parameters []string) (*http.Response, error) {
	version := map[string]string{ec2: "2016-11-15", autoScaling: "2011-01-01", sts: "2011-06-15"}[service]
	form := url.Values{"Action": {action}, "Version": {version}}
	for i := 0; i+1 < len(parameters); i += 2 {
		form.Set(parameters[i], parameters[i+1])
	}
	r, err := http.NewRequest(http.MethodPost, w.url, strings.NewReader(form.Encode()))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+key+"/20261120/eu-central-1/"+service+"/aws4_request, SignedHeaders=host, Signature=0")
	return http.DefaultClient.Do(r)
}

// try calls an action and returns its reply and error code.
func (w *world) try(name string, parameters ...string) (node, string) {
	w.Helper()
	service, action, _ := strings.Cut(name, ":")
	res, err := w.post(service, action, parameters)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var reply node
	if err := xml.NewDecoder(res.Body).Decode(&reply); err != nil {
		w.Fatal(name, err)
	}
	code := reply.one("Errors/Error/Code") + reply.one("Error/Code")
	if (res.StatusCode == http.StatusOK) != (code == "") {
		w.Fatalf("%s: status %d with code %q", name, res.StatusCode, code)
	}
	for _, inner := range reply.Nodes {
		if inner.XMLName.Local == action+"Result" {
			return inner, code
		}
	}
	return reply, code
}

func (w *world) do(name string, parameters ...string) node {
	w.Helper()
	reply, code := w.try(name, parameters...)
	if code != "" {
		w.Fatalf("%s %q: %s: %s", name, parameters, code, reply.one("Errors/Error/Message")+reply.one("Error/Message"))
	}
	return reply
}

func (w *world) refused(code, name string, parameters ...string) {
	w.Helper()
	if _, got := w.try(name, parameters...); got != code {
		w.Fatalf("%s %q: code %q, want %q", name, parameters, got, code)
	}
}

// ssm calls an action of SSM and returns its reply and error code.
func (w *world) ssm(action string, in object) (object, string) {
	w.Helper()
	raw, err := json.Marshal(in)
	if err != nil {
		w.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodPost, w.url, strings.NewReader(string(raw)))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("X-Amz-Target", "AmazonSSM."+action)
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+key+"/20261120/eu-central-1/ssm/aws4_request, SignedHeaders=host, Signature=0")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.Fatal(err)
	}
	out := object{}
	if err := json.Unmarshal(body, &out); err != nil {
		w.Fatalf("%s: %v in %s", action, err, body)
	}
	return out, text(out, "__type")
}

// put writes a parameter that holds an image.
func (w *world) put(name, image string) {
	w.Helper()
	if _, code := w.ssm("PutParameter", object{"Name": name, "Value": image, "Type": "String", "DataType": imageType, "Overwrite": true}); code != "" {
		w.Fatal(code)
	}
	w.clock.Advance(5 * time.Second)
}

// in lists the machines of the group blue in one of the lifecycle states.
func (w *world) in(states ...string) (found []Machine) {
	for _, m := range w.s.Machines() {
		if m.Group == "blue" && slices.Contains(states, m.Lifecycle) {
			found = append(found, m)
		}
	}
	return found
}

// donor is the first member.
func (w *world) donor() string { return w.s.Machines()[0].ID }

func (w *world) machine(id string) Machine {
	w.Helper()
	for _, m := range w.s.Machines() {
		if m.ID == id {
			return m
		}
	}
	w.Fatalf("no machine %s", id)
	return Machine{}
}

// image makes an available image of an instance.
func (w *world) image(id, name string) string {
	w.Helper()
	image := w.do("ec2:CreateImage", "InstanceId", id, "Name", name, "NoReboot", "true",
		"TagSpecification.1.ResourceType", "image", "TagSpecification.1.Tag.1.Key", "kamino-run", "TagSpecification.1.Tag.1.Value", "r1").one("imageId")
	w.clock.Advance(5 * time.Minute)
	return image
}

const blue = "AutoScalingGroupName"

func (w *world) standby(id string) {
	w.Helper()
	w.do("autoscaling:SuspendProcesses", blue, "blue", "ScalingProcesses.member.1", "AZRebalance")
	w.do("autoscaling:EnterStandby", blue, "blue", "InstanceIds.member.1", id, "ShouldDecrementDesiredCapacity", "true")
	w.clock.Advance(time.Minute)
	if got := w.machine(id).Lifecycle; got != standby {
		w.Fatalf("the donor is %s", got)
	}
}
