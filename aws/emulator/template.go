package emulator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// template is a launch template. Its versions are immutable.
type template struct {
	meta
	Name     string
	Default  int
	Latest   int
	Versions map[int]*templateVersion
}

// templateVersion has its data with the names of RequestLaunchTemplateData in queries.
type templateVersion struct {
	Number      int
	Description string
	Created     time.Time
	Data        object
}

func (t *template) fact(filter string) ([]string, bool) {
	if filter == "launch-template-name" {
		return []string{t.Name}, true
	}
	return nil, false
}

// version finds a version by number, $Default, $Latest or "" (which is $Default).
func (t *template) version(name string) *templateVersion {
	switch name {
	case "", "$Default":
		return t.Versions[t.Default]
	case "$Latest":
		return t.Versions[t.Latest]
	}
	n, _ := strconv.Atoi(name)
	return t.Versions[n]
}

// findTemplate finds a template by the ID or name of a specification.
func (s *Server) findTemplate(spec object) (*template, *apiError) {
	id, name := text(spec, "LaunchTemplateId"), text(spec, "LaunchTemplateName")
	if t := s.store.Templates[id]; t != nil {
		return t, nil
	}
	if id != "" {
		return nil, refuse("InvalidLaunchTemplateId.NotFound", "The specified launch template, with template ID %s, does not exist.", id)
	}
	for _, t := range s.store.Templates {
		if t.Name == name && name != "" {
			return t, nil
		}
	}
	return nil, refuse("InvalidLaunchTemplateName.NotFoundException",
		"The specified launch template, with template name %s, does not exist.", name)
}

func (s *Server) findVersion(spec object) (*template, *templateVersion, *apiError) {
	t, err := s.findTemplate(spec)
	if err != nil {
		return nil, nil, err
	}
	v := t.version(text(spec, "Version"))
	if v == nil {
		return nil, nil, noVersion(t, text(spec, "Version"))
	}
	return t, v, nil
}

func noVersion(t *template, version string) *apiError {
	return refuse("InvalidLaunchTemplateId.VersionNotFound", "Could not find the specified version %s for the launch template with ID %s.",
		version, t.ID)
}

func (c *call) showTemplate(t *template) object {
	return object{"launchTemplateId": t.ID, "launchTemplateName": t.Name, "createTime": t.Created, "createdBy": c.who.ARN,
		"defaultVersionNumber": t.Default, "latestVersionNumber": t.Latest, "tagSet": tagList(t.Tags)}
}

func (c *call) showVersion(t *template, v *templateVersion) object {
	data := v.Data
	if name, ok := strings.CutPrefix(text(data, "ImageId"), resolvePrefix); ok && truth(c.in, "ResolveAlias") {
		data = maps.Clone(data)
		if id, err := c.s.resolve(name); err == nil {
			data["ImageId"] = id
		}
	}
	return object{"launchTemplateId": t.ID, "launchTemplateName": t.Name, "versionNumber": v.Number, "versionDescription": v.Description,
		"createTime": v.Created, "createdBy": c.who.ARN, "defaultVersion": v.Number == t.Default,
		"launchTemplateData": templateData(data, "")}
}

// setNames are lists whose element in a reply is not the lower-case name with "Set".
var setNames = map[string]string{"LicenseSpecification": "licenseSet"}

// templateData is the data of a version as replies show it: names begin with a lower-case letter,
// lists end in Set (service model of EC2, ResponseLaunchTemplateData).
func templateData(in object, outer string) object {
	out := object{}
	for name, value := range in {
		switch v := value.(type) {
		case object:
			out[lowered(name)] = templateData(v, name)
		case []any:
			if outer == "NetworkInterface" && name == "SecurityGroupId" {
				out["groupSet"] = namedList{"groupId", v}
				continue
			}
			set := setNames[name]
			if set == "" {
				set = lowered(name) + "Set"
			}
			out[set] = each(v, func(item any) any {
				if o, ok := item.(object); ok {
					return templateData(o, name)
				}
				return item
			})
		default:
			out[lowered(name)] = value
		}
	}
	return out
}

// once answers a repeated client token with what was made the first time
// (https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html).
func (c *call) once() (id string, err *apiError) {
	token := text(c.in, "ClientToken")
	if token == "" {
		return "", nil
	}
	r, ok := c.s.store.Tokens[c.action+token]
	if ok && r.Digest != c.digest() {
		return "", refuse("IdempotentParameterMismatch",
			"The client token you have provided is associated with a resource that is already deleted or has different parameters.")
	}
	return r.ID, nil
}

// remember keeps what was made for a client token.
func (c *call) remember(id string) {
	if token := text(c.in, "ClientToken"); token != "" {
		c.s.store.Tokens[c.action+token] = remembered{Digest: c.digest(), ID: id}
	}
}

func (c *call) digest() string {
	raw, _ := json.Marshal(c.in) // strings, objects and lists
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// fullTemplate checks data where EC2 does so already when a version is made.
func (c *call) fullTemplate(data object) *apiError {
	if name, ok := strings.CutPrefix(text(data, "ImageId"), resolvePrefix); ok {
		if err := c.needOn("ssm:GetParameters", []target{c.ofParameter(name)}); err != nil {
			return refuse("SsmAccessDenied", "%s", err.Message)
		}
		if _, err := c.s.resolve(name); err != nil {
			return err
		}
	}
	return userData(data)
}

func createLaunchTemplate(c *call) (object, *apiError) {
	name := text(c.in, "LaunchTemplateName")
	if id, err := c.once(); err != nil || id != "" {
		return object{"launchTemplate": c.showTemplate(c.s.store.Templates[id])}, err
	}
	if _, err := c.s.findTemplate(object{"LaunchTemplateName": name}); err == nil {
		return nil, refuse("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
	}
	data, _ := copied(part(c.in, "LaunchTemplateData")).(object)
	if err := c.fullTemplate(data); err != nil {
		return nil, err
	}
	t := c.s.newTemplate(name, data, tagsFor(c.in, "launch-template"))
	t.Versions[1].Description = text(c.in, "VersionDescription")
	c.remember(t.ID)
	return object{"launchTemplate": c.showTemplate(t)}, nil
}

func (s *Server) newTemplate(name string, data object, tags map[string]string) *template {
	t := &template{meta: s.born("lt", tags), Name: name, Default: 1, Latest: 1}
	t.Versions = map[int]*templateVersion{1: {Number: 1, Created: t.Created, Data: data}}
	s.store.Templates[t.ID] = t
	return t
}

// createLaunchTemplateVersion takes what is not given from SourceVersion, without the snapshot IDs
// in its block device mappings; lists replace lists whole.
func createLaunchTemplateVersion(c *call) (object, *apiError) {
	t, err := c.s.findTemplate(c.in)
	if err != nil {
		return nil, err
	}
	if id, err := c.once(); err != nil {
		return nil, err
	} else if v := t.version(id); id != "" && v != nil {
		return object{"launchTemplateVersion": c.showVersion(t, v)}, nil
	}
	data := object{}
	if source := text(c.in, "SourceVersion"); source != "" {
		from := t.version(source)
		if from == nil {
			return nil, noVersion(t, source)
		}
		data, _ = copied(from.Data).(object)
		for _, b := range items(data, "BlockDeviceMapping") {
			delete(part(b, "Ebs"), "SnapshotId")
		}
	}
	given, _ := copied(part(c.in, "LaunchTemplateData")).(object)
	maps.Copy(data, given)
	if err := c.fullTemplate(data); err != nil {
		return nil, err
	}
	t.Latest++
	v := &templateVersion{Number: t.Latest, Description: text(c.in, "VersionDescription"), Created: c.now, Data: data}
	t.Versions[v.Number] = v
	c.remember(strconv.Itoa(v.Number))
	out := object{"launchTemplateVersion": c.showVersion(t, v)}
	if id := text(data, "ImageId"); id != "" && !strings.HasPrefix(id, resolvePrefix) && c.s.store.Images[id] == nil {
		// That a missing image is one of these is assumed, unverified on real AWS.
		out["warning"] = object{"errorSet": []any{object{"code": "InvalidAMIID.NotFound", "message": noImage(id).Message}}}
	}
	return out, nil
}

func describeLaunchTemplates(c *call) (object, *apiError) {
	ids := texts(c.in, "LaunchTemplateId")
	for _, name := range texts(c.in, "LaunchTemplateName") {
		t, err := c.s.findTemplate(object{"LaunchTemplateName": name})
		if err != nil {
			return nil, err
		}
		ids = append(ids, t.ID)
	}
	missing := func(id string) *apiError {
		_, err := c.s.findTemplate(object{"LaunchTemplateId": id})
		if err == nil { // not visible yet
			err = refuse("InvalidLaunchTemplateId.NotFound", "The specified launch template, with template ID %s, does not exist.", id)
		}
		return err
	}
	return describe(c, c.s.store.Templates, ids, missing, "launchTemplates", func(t *template) any { return c.showTemplate(t) })
}

// describeLaunchTemplateVersions shows versions of one template, or the default or latest of all.
func describeLaunchTemplateVersions(c *call) (object, *apiError) {
	type shown struct {
		t *template
		v *templateVersion
	}
	var found []shown
	wanted := texts(c.in, "LaunchTemplateVersion")
	if text(c.in, "LaunchTemplateId") == "" && text(c.in, "LaunchTemplateName") == "" {
		for _, t := range inOrder(c.s.store.Templates) {
			for _, name := range wanted {
				if v := t.version(name); v != nil {
					found = append(found, shown{t, v})
				}
			}
		}
	} else {
		t, err := c.s.findTemplate(c.in)
		if err != nil {
			return nil, err
		}
		for _, name := range wanted {
			v := t.version(name)
			if v == nil {
				return nil, noVersion(t, name)
			}
			found = append(found, shown{t, v})
		}
		for _, n := range slices.Backward(slices.Sorted(maps.Keys(t.Versions))) { // newest first
			if len(wanted) == 0 && c.between(n) {
				found = append(found, shown{t, t.Versions[n]})
			}
		}
	}
	return paged(c, found, "launchTemplateVersionSet", func(s shown) any { return c.showVersion(s.t, s.v) })
}

// between says whether a version is within MinVersion and MaxVersion.
func (c *call) between(n int) bool {
	least, hasLeast := number(c.in, "MinVersion")
	most, hasMost := number(c.in, "MaxVersion")
	return (!hasLeast || n >= least) && (!hasMost || n <= most)
}

func modifyLaunchTemplate(c *call) (object, *apiError) {
	t, err := c.s.findTemplate(c.in)
	if err != nil {
		return nil, err
	}
	v := t.version(text(c.in, "SetDefaultVersion"))
	if v == nil {
		return nil, noVersion(t, text(c.in, "SetDefaultVersion"))
	}
	t.Default = v.Number
	return object{"launchTemplate": c.showTemplate(t)}, nil
}

func deleteLaunchTemplate(c *call) (object, *apiError) {
	t, err := c.s.findTemplate(c.in)
	if err != nil {
		return nil, err
	}
	delete(c.s.store.Templates, t.ID)
	return object{"launchTemplate": c.showTemplate(t)}, nil
}

// deleteLaunchTemplateVersions never deletes the default version; it answers what it did and what
// not.
func deleteLaunchTemplateVersions(c *call) (object, *apiError) {
	t, err := c.s.findTemplate(c.in)
	if err != nil {
		return nil, err
	}
	var done, refused []any
	for _, name := range texts(c.in, "LaunchTemplateVersion") {
		v := t.version(name)
		why := object{"launchTemplateId": t.ID, "launchTemplateName": t.Name, "versionNumber": name}
		switch {
		case v == nil:
			why["responseError"] = object{"code": "launchTemplateVersionDoesNotExist", "message": noVersion(t, name).Message}
			refused = append(refused, why)
		case v.Number == t.Default:
			why["responseError"] = object{"code": "unexpectedError", "message": "The default version cannot be deleted."}
			refused = append(refused, why)
		default:
			delete(t.Versions, v.Number)
			done = append(done, why)
		}
	}
	return object{"successfullyDeletedLaunchTemplateVersionSet": done, "unsuccessfullyDeletedLaunchTemplateVersionSet": refused}, nil
}
