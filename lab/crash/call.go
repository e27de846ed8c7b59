package crash

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"kamino.dev/kamino"
	"kamino.dev/kamino/agent/patch"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/lab/nodes"
)

// Side is which of the two outside worlds a call goes to.
type Side string

// The two sides.
const (
	Kubernetes Side = "kubernetes"
	Cloud      Side = "cloud"
)

// Call is one external call of a process, numbered from 1.
type Call struct {
	N      int    `json:"n"`
	Side   Side   `json:"side"`
	Method string `json:"method"`
	Path   string `json:"path"`
	Query  string `json:"query,omitempty"`
	Step   string `json:"step"` // of the pipeline, as the process last reported
	Status int    `json:"status"`
	Write  bool   `json:"write"` // changes something
	Long   bool   `json:"long"`  // began an operation of Azure's
	Older  bool   `json:"older"` // the same read had another answer before
	List   bool   `json:"list"`
	Act    string `json:"act,omitempty"` // what it means to the invariants

	token, creates bool // it asks for credentials; it makes something, whatever its method
	unconditional  bool // it writes a pool, and its cloud takes no conditions
	prepares       bool // nothing boots from what it writes before another call
	body           []byte
	means          invariant.Call
	at             time.Time // on the world's clock
}

// String is how a call shows in the name of a case.
func (c *Call) String() string {
	path := c.Path
	if i := strings.LastIndex(strings.ToLower(path), "/providers/"); i >= 0 && c.Side == Cloud {
		path = path[i+len("/providers/"):]
	}
	return c.Method + " " + path
}

// canaryPrefix begins the names of canaries and of their nodes.
const canaryPrefix = "kamino-"

// newCall reads a request. Tokens, events, reviews of one's own rights and dry runs change nothing.
func newCall(p *Process, side Side, r *http.Request, body []byte) *Call {
	c := &Call{Side: side, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Step: p.stepName(), body: body}
	effectless := func(end string) bool { return strings.HasSuffix(c.Path, end) }
	c.Write = r.Method != http.MethodGet && !slices.ContainsFunc([]string{"/token", "/events", "/retrieveBootDiagnosticsData",
		"/selfsubjectrulesreviews", "/selfsubjectaccessreviews", "/selfsubjectreviews"}, effectless) && !c.dry()
	c.means = invariant.Call{Process: p.Name, Verb: invariant.Read, Pool: p.world.pool, Bucket: string(side) + " " +
		r.Method + " " + c.Path}
	if side == Cloud {
		p.world.meaning(c, r)
	} else if c.Write {
		c.readKubernetes()
		p.world.ofCanary(c)
	}
	c.Act = string(c.means.Verb)
	return c
}

// reads says whether a call asks what is so.
func (c *Call) reads() bool { return c.Method == http.MethodGet }

// dry says whether a request asks for no effect.
func (c *Call) dry() bool {
	if c.Side != Kubernetes || strings.Contains(c.Query, "dryRun=All") {
		return c.Side == Kubernetes
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(c.body, nil, nil)
	if err != nil {
		return false
	}
	eviction, ok := object.(*policyv1.Eviction)
	return ok && eviction.DeleteOptions != nil && len(eviction.DeleteOptions.DryRun) > 0
}

// readKubernetes tells what a write of Kubernetes means.
func (c *Call) readKubernetes() {
	parts := strings.Split(strings.Trim(c.Path, "/"), "/")
	name := parts[len(parts)-1]
	switch {
	case strings.Contains(c.Path, "/leases"):
		c.means.Verb = invariant.SetLease
	case strings.Contains(c.Path, "/nodes/"+canaryPrefix):
		if c.means.Verb, c.means.Node = invariant.AdmitCanary, name; c.Method == http.MethodDelete {
			c.means.Verb = invariant.RemoveNode
		}
	case strings.Contains(c.Path, "/nodes/"):
		c.means.Verb, c.means.Node = invariant.Mark, name
		var changes []struct{ Op, Path string }
		if json.Unmarshal(c.body, &changes) == nil { // what is no JSON patch stays a mark
			c.means.Verb = invariant.Unmark
		}
		for _, change := range changes {
			// A block that somebody took off is set again on a node that has its mark.
			if change.Op == "add" && (strings.HasSuffix(change.Path, "/kamino.dev~1run") ||
				strings.HasPrefix(change.Path, "/spec/taints")) {
				c.means.Verb = invariant.Mark
			}
		}
		for _, change := range changes {
			switch last := change.Path[strings.LastIndexByte(change.Path, '/')+1:]; {
			case change.Op == "add" && last == "kamino.node-restriction.kubernetes.io~1patched":
				c.means.Verb = invariant.Sign
			case change.Op == "add" && last == "kamino.dev~1patch-failed":
				c.means.Verb = invariant.KeepBlocked
			}
		}
	case strings.HasSuffix(c.Path, "/eviction"):
		c.means.Verb, c.means.Pod = invariant.Evict, parts[len(parts)-4]+"/"+parts[len(parts)-2]
	case strings.HasSuffix(c.Path, "/pods"):
		c.means.Verb = invariant.Seal
		if object, _, err := scheme.Codecs.UniversalDeserializer().Decode(c.body, nil, nil); err == nil {
			if pod, ok := object.(*corev1.Pod); ok {
				c.means.Node, c.means.Run = pod.Spec.NodeName, pod.Labels["kamino.dev/run"]
				if strings.HasPrefix(pod.Name, surveyPrefix) || strings.HasPrefix(pod.Name, listPrefix) {
					c.means.Verb = invariant.Survey
				}
				if verb, _, ok := patchTask(pod.Name); ok {
					c.means.Verb = verb
					var order struct{ Held string }
					if json.Unmarshal([]byte(nodes.PodEnv(pod, patch.PolicyEnv)), &order) != nil {
						order.Held = "no order"
					}
					c.means.Held = order.Held
				}
			}
		}
	case strings.Contains(c.Path, "/pods/"+patchPrefix):
		c.means.Verb = invariant.Unseal
		_, c.means.Run, _ = patchTask(name)
	case agentPod.MatchString(name):
		c.means.Verb, c.means.Run = invariant.Unseal, agentPod.ReplaceAllString(name, "")
	case strings.Contains(c.Path, "/pods/"):
		c.means.Verb, c.means.Pod = invariant.DeletePod, parts[len(parts)-3]+"/"+name
	}
}

// agentPod begins the names of a run's own pods.
var agentPod = regexp.MustCompile("^(" + sealPrefix + "|" + surveyPrefix + "|" + listPrefix + ")")

// document is as much of a body as the invariants need.
type document struct {
	Tags map[string]string `json:"tags"`
	SKU  *struct {
		Capacity int `json:"capacity"`
	} `json:"sku"`
	Properties struct {
		CreationData struct {
			Source string `json:"sourceResourceId"`
		} `json:"creationData"`
		StorageProfile struct {
			Source struct {
				ID string `json:"id"`
			} `json:"source"`
			OSDiskImage struct {
				Source struct {
					ID string `json:"id"`
				} `json:"source"`
			} `json:"osDiskImage"`
		} `json:"storageProfile"`
		Profile struct {
			Storage struct {
				Image map[string]any `json:"imageReference"`
			} `json:"storageProfile"`
		} `json:"virtualMachineProfile"`
	} `json:"properties"`
}

// ofCanary corrects what a write of a canary's node means, whose name does not tell.
func (w *World) ofCanary(c *Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.canaries[c.means.Node] || c.means.Verb != invariant.Mark && c.means.Verb != invariant.Unmark {
		return
	}
	c.means.Node = canaryPrefix + c.means.Node
	if c.means.Verb = invariant.AdmitCanary; c.Method == http.MethodDelete {
		c.means.Verb = invariant.RemoveNode
	}
}

// meaning tells what a call of Azure means.
func (w *onAzure) meaning(c *Call, r *http.Request) {
	lower := strings.ToLower(c.Path)
	c.List = r.Method == http.MethodGet && (strings.HasSuffix(lower, "/versions") || strings.HasSuffix(lower, "/virtualmachines"))
	c.token = strings.HasSuffix(c.Path, "/token")
	if !c.Write {
		return
	}
	name := c.Path[strings.LastIndexByte(c.Path, '/')+1:]
	var doc document
	_ = json.Unmarshal(c.body, &doc) // empty for actions and deletes
	m := &c.means
	kind := invariant.Version
	if strings.Contains(lower, "/snapshots/") {
		kind = invariant.Snapshot
	}
	m.Made = invariant.Artifact{Kind: kind, Pool: w.pool, Name: name, ID: c.Path, Run: doc.Tags[kamino.TagRun],
		Receipt: doc.Tags[kamino.TagReceipt], Ours: true, Source: doc.Properties.CreationData.Source}
	if kind == invariant.Version {
		m.Made.Source = doc.Properties.StorageProfile.OSDiskImage.Source.ID
		if m.Made.Source == "" {
			m.Made.Source = doc.Properties.StorageProfile.Source.ID
		}
	}
	switch {
	case strings.Contains(lower, "/virtualmachinescalesets/"+canaryPrefix):
		if m.Verb, m.Target = invariant.LaunchCanary, imageText(doc.Properties.Profile.Storage.Image); c.Method == http.MethodDelete {
			m.Verb, m.Target = invariant.RemoveCanary, name
		}
	case strings.HasSuffix(lower, "/poweroff"), strings.HasSuffix(lower, "/start"):
		m.Verb = invariant.PowerOn
		if strings.HasSuffix(lower, "/poweroff") {
			m.Verb = invariant.PowerOff
		}
		m.Machine = machineID(c.Path[:strings.LastIndexByte(c.Path, '/')])
	case c.Method == http.MethodDelete:
		m.Verb, m.Kind, m.Target = invariant.DeleteArtifact, kind, c.Path
	case strings.Contains(lower, "/images/") && c.Method == http.MethodPatch: // of a definition, its tags
		m.Verb = invariant.MarkVersion
	case strings.Contains(lower, "/versions/"):
		m.Verb = invariant.CreateVersion
	case strings.Contains(lower, "/snapshots/"):
		m.Verb = invariant.CreateSnapshot
	case strings.Contains(lower, "/images/"):
		m.Verb = invariant.CreateDefinition
	case strings.Contains(lower, "/galleries/"):
		m.Verb = invariant.CreateGallery
	case doc.SKU != nil && doc.Properties.Profile.Storage.Image == nil:
		m.Verb, m.Instances, m.Revision = invariant.SetCapacity, doc.SKU.Capacity, r.Header.Get("If-Match")
	default:
		m.Verb, m.Target, m.Revision = invariant.SetModel, imageText(doc.Properties.Profile.Storage.Image), r.Header.Get("If-Match")
		m.Fields = fieldsOf(c.body)
	}
}

// fieldsOf lists what a write of a model changes: everything but the storage
// profile that must be repeated with the image.
func fieldsOf(body []byte) []string {
	var doc struct {
		SKU        json.RawMessage `json:"sku"`
		Properties map[string]json.RawMessage
	}
	if json.Unmarshal(body, &doc) != nil {
		return []string{"unreadable"}
	}
	var out []string
	if doc.SKU != nil {
		out = append(out, "sku")
	}
	for name, value := range doc.Properties {
		var profile map[string]map[string]json.RawMessage
		if name != "virtualMachineProfile" || json.Unmarshal(value, &profile) != nil {
			out = append(out, name)
			continue
		}
		for part, fields := range profile {
			for field := range fields {
				if part != "storageProfile" || field == "imageReference" {
					out = append(out, part+"."+field)
				}
			}
		}
	}
	return out
}

// imageText is an image reference as one text, as the provider writes it.
func imageText(image map[string]any) string {
	text := func(name string) string { s, _ := image[name].(string); return s }
	if id := text("id"); id != "" {
		return id
	}
	return strings.Join([]string{text("publisher"), text("offer"), text("sku"), text("version")}, ":")
}

// machineID is an instance as the providerID of its node names it, in lower case.
func machineID(id string) string { return strings.ToLower(nodes.ProviderID(id)) }

// reply is an answer, whole.
type reply struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func newReply() *reply { return &reply{status: http.StatusOK, header: http.Header{}} }

// Header, WriteHeader and Write make a reply a http.ResponseWriter.
func (r *reply) Header() http.Header             { return r.header }
func (r *reply) WriteHeader(status int)          { r.status = status }
func (r *reply) Write(b []byte) (n int, e error) { return r.body.Write(b) }

// send passes a reply on.
func (r *reply) send(w http.ResponseWriter) {
	for key, values := range r.header {
		if key != "Content-Length" && key != "Transfer-Encoding" {
			w.Header()[key] = values
		}
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body.Bytes()) // a client that has gone needs no answer
}

func readBody(r *http.Request) []byte {
	body, err := io.ReadAll(io.LimitReader(r.Body, 8<<20))
	if err != nil {
		return nil // the client was killed while it sent
	}
	return body
}
