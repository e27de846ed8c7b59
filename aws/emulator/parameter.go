package emulator

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// resolvePrefix stands before the name of a parameter in place of an image ID
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/using-systems-manager-parameters.html).
const resolvePrefix = "resolve:ssm:"

// imageType is the data type of parameters that hold an image ID; EC2 resolves no other.
const imageType = "aws:ec2:image"

// parameter is one of SSM's.
type parameter struct {
	Name     string
	Last     int                 // number that was given last
	Versions []*parameterVersion // oldest first
}

type parameterVersion struct {
	Number   int
	Value    string
	Type     string // String, StringList, SecureString
	DataType string
	Labels   []string
	Modified time.Time
	Checked  bool // an image ID, and the image is there; before, it is not read
}

// newest is the newest version that is in effect.
func (p *parameter) newest() *parameterVersion {
	for _, v := range slices.Backward(p.Versions) {
		if v.Checked {
			return v
		}
	}
	return nil
}

// selected finds NAME, NAME:VERSION or NAME:LABEL.
func (s *Server) selected(selector string) (*parameter, *parameterVersion) {
	// That the ARN of one's own account stands for its name is assumed, unverified on real AWS.
	own := "arn:aws:ssm:" + s.Region + ":" + s.Account + ":parameter"
	if path, ok := strings.CutPrefix(selector, own); ok {
		selector = path
		if s.store.Parameters[path] == nil {
			selector = strings.TrimPrefix(path, "/")
		}
	}
	name, which, _ := strings.Cut(selector, ":")
	p := s.store.Parameters[name]
	if p == nil {
		return nil, nil
	}
	if which == "" {
		return p, p.newest()
	}
	for _, v := range p.Versions {
		if v.Checked && (strconv.Itoa(v.Number) == which || slices.Contains(v.Labels, which)) {
			return p, v
		}
	}
	return p, nil
}

// resolve is the image ID behind resolve:ssm:NAME, as EC2 finds it.
func (s *Server) resolve(name string) (string, *apiError) {
	p, v := s.selected(name)
	switch {
	case p == nil || v == nil:
		return "", refuse("SsmInvalidParameter", "The following aliases are invalid: %s", name)
	case v.DataType != imageType:
		return "", refuse("SsmInvalidParameter", "Unsupported data type. The following parameter data types are supported: %s", imageType)
	}
	return v.Value, nil
}

// putParameter answers at once. A version of data type aws:ec2:image comes into effect only once
// the image was found, and never if it was not: then its number is used up (assumed, unverified on
// real AWS) and the former value stays
// (https://docs.aws.amazon.com/systems-manager/latest/userguide/parameter-store-ec2-aliases.html).
func putParameter(c *call) (object, *apiError) {
	s, name := c.s, text(c.in, "Name")
	overwrite, _ := c.in["Overwrite"].(bool)
	p := s.store.Parameters[name]
	switch {
	case name == "" || text(c.in, "Value") == "":
		return nil, refuse("ValidationException", "Name and Value are required")
	case p != nil && !overwrite:
		return nil, refuse("ParameterAlreadyExists",
			"The parameter already exists. To overwrite this value, set the overwrite option in the request to true.")
	case overwrite && c.in["Tags"] != nil:
		return nil, refuse("ValidationException", "Invalid request: tags and overwrite can't be used together.")
	case p == nil && text(c.in, "Type") == "":
		return nil, refuse("ValidationException", "A parameter type is required when you create a parameter.")
	}
	v := &parameterVersion{Value: text(c.in, "Value"), Type: text(c.in, "Type"), DataType: text(c.in, "DataType"),
		Modified: c.now, Checked: true}
	if p != nil && len(p.Versions) > 0 {
		v.Type = cmp.Or(v.Type, p.Versions[len(p.Versions)-1].Type)
	}
	if p != nil && len(p.Versions) > 0 && v.Type != p.Versions[len(p.Versions)-1].Type {
		return nil, refuse("HierarchyTypeMismatchException", "The parameter type cannot be changed from %s to %s. Create a new parameter.",
			p.Versions[len(p.Versions)-1].Type, v.Type)
	}
	v.DataType = cmp.Or(v.DataType, "text")
	if v.DataType == imageType {
		if err := c.need("ec2:DescribeImages"); err != nil {
			return nil, err
		}
		if !strings.HasPrefix(v.Value, "ami-") {
			return nil, refuse("ValidationException", "The parameter value is not a valid image ID")
		}
	}
	if p != nil && len(p.Versions) >= 100 {
		if len(p.Versions[0].Labels) > 0 {
			return nil, refuse("ParameterMaxVersionLimitExceeded", "The oldest of 100 versions has a label")
		}
		p.Versions = p.Versions[1:]
	}
	if p == nil {
		p = &parameter{Name: name}
		s.store.Parameters[name] = p
	}
	p.Last++
	v.Number = p.Last
	p.Versions = append(p.Versions, v)
	if v.DataType == imageType {
		v.Checked = false
		s.later(c.slow(s.delays.Parameter), func() { s.check(name, v.Number) })
	}
	return object{"Version": v.Number, "Tier": "Standard"}, nil
}

// check is SSM looking whether the image is there.
func (s *Server) check(name string, number int) {
	p := s.store.Parameters[name]
	if p == nil {
		return
	}
	p.Versions = slices.DeleteFunc(p.Versions, func(v *parameterVersion) bool {
		if v.Number != number {
			return false
		}
		v.Checked = s.store.Images[v.Value] != nil
		return !v.Checked
	})
}

func (c *call) showParameter(p *parameter, v *parameterVersion, selector string) object {
	o := object{"Name": p.Name, "Type": v.Type, "Value": v.Value, "Version": v.Number, "LastModifiedDate": v.Modified,
		"DataType": v.DataType,
		"ARN":      "arn:aws:ssm:" + c.s.Region + ":" + c.s.Account + ":parameter/" + strings.TrimPrefix(p.Name, "/")}
	if _, which, ok := strings.Cut(selector, ":"); ok {
		o["Selector"] = ":" + which
	}
	return o
}

func getParameter(c *call) (object, *apiError) {
	selector := text(c.in, "Name")
	p, v := c.s.selected(selector)
	if v == nil && p != nil && strings.Contains(selector, ":") {
		return nil, refuse("ParameterVersionNotFound", "Systems Manager could not find version %s.", selector)
	}
	if v == nil {
		return nil, refuse("ParameterNotFound", "")
	}
	return object{"Parameter": c.showParameter(p, v, selector)}, nil
}

func getParameters(c *call) (object, *apiError) {
	var found, missing []any
	for _, selector := range texts(c.in, "Names") {
		if p, v := c.s.selected(selector); v != nil {
			found = append(found, c.showParameter(p, v, selector))
		} else {
			missing = append(missing, selector)
		}
	}
	return object{"Parameters": append([]any{}, found...), "InvalidParameters": append([]any{}, missing...)}, nil
}

func getParameterHistory(c *call) (object, *apiError) {
	p := c.s.store.Parameters[text(c.in, "Name")]
	if p == nil {
		return nil, refuse("ParameterNotFound", "")
	}
	shown := slices.DeleteFunc(slices.Clone(p.Versions), func(v *parameterVersion) bool { return !v.Checked })
	size, ok := number(c.in, "MaxResults")
	if !ok {
		size = 50
	}
	shown, next, err := page(shown, size, text(c.in, "NextToken"))
	if err != nil {
		return nil, err
	}
	out := object{"Parameters": each(shown, func(v *parameterVersion) any {
		o := c.showParameter(p, v, "")
		delete(o, "ARN") // a ParameterHistory has none (service model of SSM)
		o["Labels"] = list(v.Labels)
		return o
	})}
	if next != "" {
		out["NextToken"] = next
	}
	return out, nil
}

// labelParameterVersion moves labels to a version, from whichever had them.
func labelParameterVersion(c *call) (object, *apiError) {
	p := c.s.store.Parameters[text(c.in, "Name")]
	if p == nil {
		return nil, refuse("ParameterNotFound", "")
	}
	target := p.newest()
	if n, ok := number(c.in, "ParameterVersion"); ok {
		target = nil
		for _, v := range p.Versions {
			if v.Number == n && v.Checked {
				target = v
			}
		}
	}
	if target == nil {
		return nil, refuse("ParameterVersionNotFound", "")
	}
	labels := texts(c.in, "Labels")
	for _, v := range p.Versions {
		v.Labels = slices.DeleteFunc(v.Labels, func(l string) bool { return slices.Contains(labels, l) })
	}
	target.Labels = append(target.Labels, labels...)
	return object{"InvalidLabels": []any{}, "ParameterVersion": target.Number}, nil
}

func deleteParameter(c *call) (object, *apiError) {
	name := text(c.in, "Name")
	if c.s.store.Parameters[name] == nil {
		return nil, &apiError{Status: http.StatusBadRequest, Code: "ParameterNotFound"}
	}
	delete(c.s.store.Parameters, name)
	return object{}, nil
}
