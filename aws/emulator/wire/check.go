package wire

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// versions tell the services of query protocols apart.
var versions = map[string]string{"2016-11-15": "ec2", "2011-01-01": "autoscaling", "2011-06-15": "sts"}

// Walk is what a Checked handler has seen.
type Walk struct {
	mu       sync.Mutex
	replies  map[string]int // by action
	problems map[string]int
}

// Actions are those of which a reply was compared, in order.
func (w *Walk) Actions() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.replies))
}

// Problems are all differences, in order, each once.
func (w *Walk) Problems() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.problems))
}

// Checked compares every reply of a handler with the models, and every request that it accepts. A
// difference fails the test when it ends. Without botocore nothing is compared.
func Checked(t testing.TB, h http.Handler) (http.Handler, *Walk) {
	t.Helper()
	walk := &Walk{replies: map[string]int{}, problems: map[string]int{}}
	models, err := Models()
	if err != nil {
		return h, walk
	}
	t.Cleanup(func() {
		for _, p := range walk.Problems() {
			t.Errorf("not as in botocore's models: %s", p)
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		reply := &recorder{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(reply, r)
		walk.exchange(models, r, body, reply)
	}), walk
}

type recorder struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	r.body.Write(b)
	return r.ResponseWriter.Write(b)
}

// exchange compares one request and its reply.
func (w *Walk) exchange(models map[string]*service, r *http.Request, body []byte, reply *recorder) {
	name, action := "ssm", ""
	form, err := url.ParseQuery(string(body))
	if target, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSSM."); ok {
		action = target
	} else if err == nil {
		name, action = versions[form.Get("Version")], form.Get("Action")
	}
	s := models[name]
	if s == nil {
		return
	}
	op, ok := s.Operations[action]
	_, current := models["ec2"].Operations["DisableImage"] // of 2024
	c := &comparison{service: s, walk: w, name: name + ":" + action, current: current}
	if !ok && reply.status >= 300 {
		c.refusal(reply)
		return
	}
	if !ok {
		c.unknown("", action)
		return
	}
	if reply.status >= 300 {
		c.refusal(reply)
		if !bytes.Contains(reply.body.Bytes(), []byte("DryRunOperation")) {
			return
		}
	} else {
		c.reply(op.Output.Shape, op.Output.ResultWrapper, reply)
	}
	if name == "ssm" {
		var in any
		if json.Unmarshal(body, &in) == nil {
			c.json("request", s.Shapes[op.Input.Shape], in)
		}
		return
	}
	c.request(op.Input.Shape, form)
}

type comparison struct {
	service *service
	walk    *Walk
	name    string
	current bool // the model has what the emulator has
}

func (c *comparison) problem(path, format string, args ...any) {
	c.walk.mu.Lock()
	defer c.walk.mu.Unlock()
	c.walk.problems[strings.TrimSpace(c.name+" "+path)+": "+fmt.Sprintf(format, args...)]++
}

// unknown reports a name that the model does not have. The models of Debian 12 are of 2022 and lack
// what came later: there it reports nothing.
func (c *comparison) unknown(path, name string) {
	if c.current {
		c.problem(path, "%s is unknown", name)
	}
}

// element is one of XML.
type element struct {
	XMLName xml.Name
	Text    string    `xml:",chardata"`
	Nodes   []element `xml:",any"`
}

func (e element) child(name string) (element, bool) {
	i := slices.IndexFunc(e.Nodes, func(n element) bool { return n.XMLName.Local == name })
	if i < 0 {
		return element{}, false
	}
	return e.Nodes[i], true
}

// refusal compares the envelope of an error
// (https://smithy.io/2.0/aws/protocols/aws-query-protocol.html, aws-ec2-query-protocol.html).
func (c *comparison) refusal(reply *recorder) {
	if c.service.Metadata.Protocol == "json" {
		var e struct {
			Type string `json:"__type"`
		}
		if json.Unmarshal(reply.body.Bytes(), &e) != nil || e.Type == "" {
			c.problem("", "an error without __type")
		}
		return
	}
	root, ok := c.parse(reply)
	if !ok {
		return
	}
	wrapped := root
	if c.service.Metadata.Protocol == "ec2" {
		wrapped, ok = root.child("Errors")
	}
	inner, there := wrapped.child("Error")
	code, _ := inner.child("Code")
	if !ok || !there || code.Text == "" {
		c.problem("", "an error without Code")
	}
}

func (c *comparison) parse(reply *recorder) (root element, ok bool) {
	err := xml.Unmarshal(reply.body.Bytes(), &root)
	if err != nil {
		c.problem("", "the reply is not XML: %v", err)
	}
	return root, err == nil
}

// reply compares the reply of a call that was accepted.
func (c *comparison) reply(output, wrapper string, reply *recorder) {
	c.walk.mu.Lock()
	c.walk.replies[c.name]++
	c.walk.mu.Unlock()
	out := c.service.Shapes[output]
	if c.service.Metadata.Protocol == "json" {
		var value any
		if err := json.Unmarshal(reply.body.Bytes(), &value); err != nil {
			c.problem("", "the reply is not JSON: %v", err)
			return
		}
		c.json("reply", out, value)
		return
	}
	root, ok := c.parse(reply)
	if !ok {
		return
	}
	_, action, _ := strings.Cut(c.name, ":")
	if root.XMLName.Local != action+"Response" {
		c.problem("", "the reply is a %s", root.XMLName.Local)
	}
	meta := map[string]string{"ec2": "requestId", "query": "ResponseMetadata"}[c.service.Metadata.Protocol]
	if _, ok := root.child(meta); !ok {
		c.problem("", "no %s", meta)
	}
	if wrapper != "" {
		if root, ok = root.child(wrapper); !ok {
			c.problem("", "no %s", wrapper)
			return
		}
	}
	if out != nil {
		c.xml("reply", out, root)
	}
}

// xml compares an element with its shape.
func (c *comparison) xml(path string, s *shape, e element) {
	switch s.Type {
	case "structure":
		got := []string{}
		for _, n := range e.Nodes {
			name, m, ok := s.named(n.XMLName.Local)
			switch {
			case ok:
				got = append(got, name)
				c.xml(path+"/"+n.XMLName.Local, c.service.Shapes[m.Shape], n)
			case n.XMLName.Local != "requestId":
				c.unknown(path, n.XMLName.Local)
			}
		}
		c.complete(path, s, got)
	case "list":
		want := s.Member.LocationName
		if want == "" {
			want = "member"
		}
		for _, n := range e.Nodes {
			if n.XMLName.Local != want {
				c.problem(path, "an entry is called %s, not %s", n.XMLName.Local, want)
			}
			c.xml(path+"[]", c.service.Shapes[s.Member.Shape], n)
		}
	case "map":
	default:
		c.scalar(path, s, e.Text)
	}
}

// named is the member of a structure whose element has a name.
func (s *shape) named(name string) (string, member, bool) {
	for n, m := range s.Members {
		if m.LocationName == name || m.LocationName == "" && n == name {
			return n, m, true
		}
	}
	return "", member{}, false
}

func (c *comparison) complete(path string, s *shape, got []string) {
	for _, r := range s.Required {
		if !slices.Contains(got, r) {
			c.problem(path+"/"+r, "required, and absent")
		}
	}
}

var moment = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$`)

func (c *comparison) scalar(path string, s *shape, text string) {
	var err error
	switch s.Type {
	case "integer", "long", "double", "float":
		var n float64
		if n, err = strconv.ParseFloat(text, 64); err == nil {
			c.within(path, s, n)
		}
	case "boolean":
		if text != "true" && text != "false" {
			err = fmt.Errorf("%q is not a boolean", text)
		}
	case "timestamp":
		if !moment.MatchString(text) {
			err = fmt.Errorf("%q is not a time", text)
		}
	case "string":
		// EC2 shows the platform windows; its model has Windows.
		if len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(v string) bool { return strings.EqualFold(v, text) }) {
			c.unknown(path, text)
		}
		c.within(path, s, float64(len(text)))
	}
	if err != nil {
		c.problem(path, "%v", err)
	}
}

// within compares a number, or how long something is, in requests: services do not hold their
// replies to the bounds.
func (c *comparison) within(path string, s *shape, n float64) {
	if !strings.HasPrefix(path, "request") {
		return
	}
	if n < s.Min || s.Max > 0 && n > s.Max {
		c.problem(path, "%v is not between %v and %v", n, s.Min, s.Max)
	}
}

// json compares a value of JSON with its shape.
func (c *comparison) json(path string, s *shape, value any) {
	if s == nil || value == nil {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		if s.Type != "structure" {
			c.problem(path, "a structure in place of a %s", s.Type)
			return
		}
		for name, inner := range v {
			if m, ok := s.Members[name]; ok {
				c.json(path+"/"+name, c.service.Shapes[m.Shape], inner)
			} else {
				c.unknown(path, name)
			}
		}
		c.complete(path, s, slices.Collect(maps.Keys(v)))
	case []any:
		if s.Type != "list" {
			c.problem(path, "a list in place of a %s", s.Type)
			return
		}
		c.within(path, s, float64(len(v)))
		for _, inner := range v {
			c.json(path+"[]", c.service.Shapes[s.Member.Shape], inner)
		}
	case string:
		if s.Type != "string" {
			c.problem(path, "a string in place of a %s", s.Type)
			return
		}
		c.scalar(path, s, v)
	case bool:
		if s.Type != "boolean" {
			c.problem(path, "a boolean in place of a %s", s.Type)
		}
	case float64:
		if !slices.Contains([]string{"integer", "long", "double", "float", "timestamp"}, s.Type) {
			c.problem(path, "a number in place of a %s", s.Type)
		}
	}
}

// request compares the form of a query protocol: every parameter is one of the model, and none that
// is required is absent.
func (c *comparison) request(input string, form url.Values) {
	names := slices.Sorted(maps.Keys(form))
	names = slices.DeleteFunc(names, func(n string) bool { return n == "Action" || n == "Version" })
	tree := map[string]any{}
	for _, name := range names {
		at, parts := tree, strings.Split(name, ".")
		for _, p := range parts[:len(parts)-1] {
			next, ok := at[p].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[p] = next
			}
			at = next
		}
		at[parts[len(parts)-1]] = form.Get(name)
	}
	c.form("request", c.service.Shapes[input], tree)
}

func (c *comparison) form(path string, s *shape, value any) {
	if s == nil {
		return
	}
	tree, isTree := value.(map[string]any)
	text, _ := value.(string)
	switch {
	case s.Type == "structure" && isTree:
		got := []string{}
		for name, inner := range tree {
			i := ""
			for n, m := range s.Members {
				if c.parameter(n, m) == name {
					i = n
				}
			}
			if i == "" {
				c.unknown(path, name)
				continue
			}
			got = append(got, i)
			c.form(path+"/"+name, c.service.Shapes[s.Members[i].Shape], inner)
		}
		c.complete(path, s, got)
	case s.Type == "list" && isTree:
		if c.service.Metadata.Protocol == "query" && !s.Flattened {
			tree, _ = tree["member"].(map[string]any)
		}
		c.within(path, s, float64(len(tree)))
		for _, inner := range tree {
			c.form(path+"[]", c.service.Shapes[s.Member.Shape], inner)
		}
	case s.Type == "list" && text == "": // an empty list
	case isTree != (s.Type == "structure" || s.Type == "list" || s.Type == "map"):
		c.problem(path, "not a %s", s.Type)
	case !isTree:
		c.scalar(path, s, text)
	}
}

// parameter is the name of a member in a request: EC2 writes it with a capital
// (https://smithy.io/2.0/aws/protocols/aws-ec2-query-protocol.html).
func (c *comparison) parameter(name string, m member) string {
	switch {
	case c.service.Metadata.Protocol != "ec2":
		if m.LocationName != "" {
			return m.LocationName
		}
		return name
	case m.QueryName != "":
		return m.QueryName
	case m.LocationName != "":
		return strings.ToUpper(m.LocationName[:1]) + m.LocationName[1:]
	}
	return name
}
