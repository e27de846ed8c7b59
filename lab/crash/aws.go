package crash

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws"
	awsemulator "kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/docs"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/lab/nodes"
)

const (
	awsScheme   = "aws:///"
	awsRegion   = "eu-central-1"
	awsKey      = "AKIACRASH"         // Kamino's
	awsOperator = "AKIACRASHOPERATOR" // of everybody else
)

// onAWS is a world on AWS.
type onAWS struct {
	*World
	cloud   *awsemulator.Server
	recipe  string          // of the group but for its image, as a person made it
	imaged  map[string]bool // snapshots that an image was ever made of
	excused bool            // somebody did what lets the group replace or remove instances
}

// awsLatencies make every long operation last for one to three polls.
func awsLatencies() awsemulator.Latencies {
	return awsemulator.Latencies{
		Visible: time.Second, TagVisible: 2 * time.Second, Launch: 9 * time.Second, Stop: 9 * time.Second, ForceStop: 4 * time.Second,
		Start:     4 * time.Second,
		Terminate: 4 * time.Second, Snapshot: 4 * time.Second, Image: 9 * time.Second, Register: 9 * time.Second,
		EnterStandby: 4 * time.Second,
		ExitStandby:  4 * time.Second, HealthCheck: 10 * time.Second, Rebalance: 20 * time.Second, RetryLaunch: 20 * time.Second,
		Parameter: time.Second,
	}
}

// onAWS makes a Region of AWS a world's cloud. The donor is alone in its zone: while it is in
// Standby, AZRebalance would launch one there and terminate one elsewhere.
func (w *World) onAWS(g awsemulator.Group) {
	g.Name, g.Count, g.Zones, g.Tags = poolName, 3, 2, map[string]string{"kubernetes.io/cluster/crash": "owned"}
	if g.Min == 0 {
		g.Min = 1
	}
	if !w.shape.Tagged && w.shape.Old > 0 {
		g.Parameter = "/kamino/crash/" + poolName + "/image"
	}
	server := &awsemulator.Server{Clock: w.clock.virtual, Latencies: awsLatencies(), Region: awsRegion,
		Identities: []awsemulator.Identity{{AccessKey: awsKey}, {AccessKey: awsOperator}}}
	server.SetPolicy(awsKey, awsRights())
	server.Seed(g, awsemulator.Group{Name: otherGroup})
	a := &onAWS{World: w, cloud: server, imaged: map[string]bool{}}
	a.recipe = a.recipeNow()
	w.pool = "aws:" + awsRegion + "/" + poolName
	w.cloud, w.fleet = a, nodes.AWS(server)
}

// awsRights are the shipped policies.
func awsRights() awsemulator.Policy {
	return awsemulator.MustPolicy(docs.AWSPolicies("123456789012", "nodes")...)
}

func (w *onAWS) Close() { w.cloud.Close() }

// toStation sends a process's calls to its own station, whatever endpoint the environment names.
type toStation struct {
	guard
	host string
}

func (t toStation) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = "https", t.host, t.host
	return t.guard.RoundTrip(r)
}

func (w *onAWS) provider(p *Process) (kamino.Provider, error) {
	host := strings.TrimPrefix(w.station.cloudURL, "https://")
	return aws.New(aws.Config{Region: awsRegion, Cluster: "crash", Clock: p,
		Transport: &http.Client{Transport: toStation{guard{p, w.station.toCloud}, host}}})
}

// awsEnvironment is what the SDK reads in processes and goroutines alike.
func awsEnvironment(endpoint string) map[string]string {
	return map[string]string{"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": awsRegion, "AWS_ACCESS_KEY_ID": awsKey,
		"AWS_SECRET_ACCESS_KEY": "not-a-secret",
		"AWS_CONFIG_FILE":       "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_PROFILE":   "",
		"AWS_CA_BUNDLE": ""}
}

func (w *onAWS) command() (args, environment []string) {
	for name, value := range awsEnvironment(w.station.cloudURL) {
		environment = append(environment, name+"="+value)
	}
	return []string{"--provider", "aws", "--cluster-name", "crash"}, environment
}

func (w *onAWS) vmOf(id string) string { return id }

// poolOf is the pool of an instance that lives; "" for a canary.
func (w *onAWS) poolOf(id string) string {
	if m, ok := w.cloud.Machine(id[strings.LastIndexByte(id, '/')+1:]); ok && m.Group == poolName {
		return w.pool
	}
	return ""
}

func (w *onAWS) inService(in emulator.Instance) bool {
	m, ok := w.cloud.Machine(in.Name)
	return ok && (m.Lifecycle == "InService" || m.Lifecycle == "Pending")
}

func (w *onAWS) makeModels(int) error { return nil }

func (w *onAWS) reconcile() (did emulator.CAPZWork) { return did }

// recipeNow is what instances are launched from, but for their image.
func (w *onAWS) recipeNow() string {
	g, _ := w.cloud.Group(poolName)
	raw, err := json.Marshal(g.Data)
	w.check("read the template", err)
	return string(raw)
}

// call is one of somebody else, with parameters as EC2 and Auto Scaling read them.
func (w *onAWS) call(service, action string, parameters ...string) *reply {
	version := "2016-11-15"
	if service == "autoscaling" {
		version = "2011-01-01"
	}
	form := url.Values{"Action": {action}, "Version": {version}}
	for i := 0; i+1 < len(parameters); i += 2 {
		form.Set(parameters[i], parameters[i+1])
	}
	return w.post(service, "", []byte(form.Encode()))
}

// parameter is somebody else's PutParameter.
func (w *onAWS) parameter(name, image string) {
	raw, err := json.Marshal(map[string]any{"Name": name, "Value": image, "Type": "String", "DataType": "aws:ec2:image", "Overwrite": true})
	w.check("write parameter", err)
	w.post("ssm", "AmazonSSM.PutParameter", raw)
}

func (w *onAWS) post(service, target string, content []byte) *reply {
	answer := newReply()
	r, err := http.NewRequestWithContext(w.ctx, http.MethodPost, w.station.cloudURL, body(content))
	if err != nil {
		answer.status = http.StatusBadRequest
		return answer
	}
	if r.Header.Set("Content-Type", "application/x-www-form-urlencoded"); target != "" {
		r.Header.Set("Content-Type", "application/x-amz-json-1.1")
		r.Header.Set("X-Amz-Target", target)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+awsOperator+"/20261120/"+awsRegion+"/"+service+
		"/aws4_request, SignedHeaders=host, Signature=0")
	w.cloud.ServeHTTP(answer, r)
	return answer
}

// makeHistory gives the pool images of earlier days, one hidden and one withdrawn.
func (w *onAWS) makeHistory() error {
	last := w.fleet.Instances()[2]
	add := func(version string, tags map[string]string) error {
		tags = maps.Clone(tags)
		tags["kamino-pool"], tags["kamino-snapshot"] = poolName, kamino.SnapshotName(poolName)
		var snapshot *reply
		if err := w.asSealed(w.machines[strings.ToLower(last.ID)], func() error {
			snapshot = w.tagged("CreateSnapshot", "snapshot", tags, "VolumeId", last.OSDiskID)
			return nil
		}); err != nil {
			return err
		}
		id, ok := between(snapshot, "<snapshotId>")
		w.clock.virtual.Advance(30 * time.Second)
		delete(tags, "kamino-snapshot")
		tags["kamino-version"] = version
		image := w.tagged("RegisterImage", "image", tags, "Name", "kamino-"+poolName+"-"+version, "RootDeviceName", "/dev/xvda",
			"Architecture", "x86_64",
			"VirtualizationType", "hvm", "BlockDeviceMapping.1.DeviceName", "/dev/xvda", "BlockDeviceMapping.1.Ebs.SnapshotId", id)
		w.clock.virtual.Advance(30 * time.Second)
		if _, made := between(image, "<imageId>"); !ok || !made {
			return fmt.Errorf("make version %s: %s %s", version, snapshot.body.String(), image.body.String())
		}
		return nil
	}
	if err := add(kamino.VersionName(w.start.AddDate(0, 0, -2*w.shape.Old-1)), ofFormerPool("old-node")); err != nil {
		return err
	}
	for i := range w.shape.Old {
		day := w.start.AddDate(0, 0, i-w.shape.Old)
		tags := map[string]string{kamino.TagBuiltFrom: strings.ToLower(last.ComputerName),
			kamino.TagBuiltAt: day.Format(kamino.BuiltAtFormat), kamino.TagOffer: "offered",
			kamino.TagReceipt: "sha256:" + strings.Repeat("0", 64)}
		if err := add(kamino.VersionName(day), tags); err != nil {
			return err
		}
		if i > 1 {
			continue
		}
		tags[kamino.TagOffer], tags["kamino-excluded"] = []string{"hidden", "withdrawn"}[i], "true"
		if i == 1 {
			tags[kamino.TagBad] = "rolled back"
		}
		if err := add(kamino.VersionName(day)+"01", tags); err != nil {
			return err
		}
	}
	if w.shape.hidden() {
		return add(kamino.VersionName(w.start), map[string]string{"packer": "yes", "kamino-excluded": "true"})
	}
	return nil
}

func (w *onAWS) tagged(action, kind string, tags map[string]string, parameters ...string) *reply {
	parameters = append(parameters, "TagSpecification.1.ResourceType", kind)
	for i, key := range slices.Sorted(maps.Keys(tags)) {
		n := "TagSpecification.1.Tag." + strconv.Itoa(i+1)
		parameters = append(parameters, n+".Key", key, n+".Value", tags[key])
	}
	return w.call("ec2", action, parameters...)
}

// between is the text of the first element of a name in a reply.
func between(r *reply, element string) (string, bool) {
	_, after, ok := strings.Cut(r.body.String(), element)
	inner, _, _ := strings.Cut(after, "<")
	return inner, ok
}

// readCloud reads pool, machines and artifacts from the emulator.
func (w *onAWS) readCloud() {
	s := &w.state
	s.Pools, s.Machines, s.Artifacts, s.Canaries = []invariant.Pool{}, nil, nil, nil
	if g, ok := w.cloud.Group(poolName); ok {
		raw, err := json.Marshal([]any{g.Desired, g.Min, g.Max, g.Version, g.Named, g.Image})
		w.check("read the group", err)
		s.Pools = append(s.Pools, invariant.Pool{ID: w.pool, Image: g.Image, Revision: string(raw), Capacity: g.Desired, Person: w.person,
			Owned: w.owned, Replaces: true,
			Suspended: g.Tags["kamino-suspended"] != "" || slices.Contains(g.Suspended, "AZRebalance") && !w.excused,
			Refused:   g.Refreshing || g.Tags[ownerTag] != ""})
		for _, t := range g.Terminations {
			if !w.excused {
				w.excused = true // once is enough
				w.audit.Violate("I31", "the group terminates instance %s, which nobody asked for: %s", t.Instance, t.Cause)
			}
		}
		if now := w.recipeNow(); now != w.recipe {
			w.audit.Violate("I10", "fields of the launch template other than the image have changed: %s", now)
			w.recipe = now
		}
	}
	w.readArtifacts()
	for _, in := range w.fleet.Instances() {
		m, _ := w.cloud.Machine(in.Name)
		if in.Tags[kamino.TagCanary] != "" {
			s.Canaries = append(s.Canaries, invariant.Canary{Name: m.Tags["kamino-canary-name"], Pool: w.pool, Run: m.Tags[kamino.TagRun]})
		}
		is := w.machineState(in)
		is.Ends = m.State == "shutting-down"
		s.Machines = append(s.Machines, is)
	}
}

// states are those of images and snapshots in the words of invariants.
var awsStates = map[string]string{"completed": "Succeeded", "available": "Succeeded", "pending": "Creating"}

func (w *onAWS) readArtifacts() {
	artifact := func(kind invariant.Kind, name string, m awsemulator.Made) invariant.Artifact {
		a := invariant.Artifact{Kind: kind, Pool: w.pool, Name: name, ID: m.ID, State: awsStates[m.State], Source: m.Source,
			Run:     m.Tags[kamino.TagRun],
			Receipt: m.Tags[kamino.TagReceipt], Ours: made(func(tag string) string { return m.Tags[tag] })}
		if a.State == "" {
			a.State = "Failed"
		}
		a.Ready = a.State == "Succeeded"
		return a
	}
	kept := map[string]bool{}
	for _, m := range w.cloud.Images() {
		for _, id := range m.Snapshots {
			kept[id], w.imaged[id], m.Source = true, true, id
		}
		w.state.Artifacts = append(w.state.Artifacts, artifact(invariant.Version, m.Tags["kamino-version"], m))
	}
	for _, m := range w.cloud.Snapshots() {
		if !kept[m.ID] {
			w.state.Artifacts = append(w.state.Artifacts, artifact(invariant.Snapshot, m.Tags["kamino-snapshot"], m))
		}
	}
}

// lines are what the cloud has. What is new has other IDs and addresses each time.
func (w *onAWS) lines() (out []string, err error) {
	g, _ := w.cloud.Group(poolName)
	names := map[string]string{}
	for _, m := range w.cloud.Images() {
		names[m.ID] = m.Name
		tags := maps.Clone(m.Tags)
		delete(tags, "kamino-machine")
		out = append(out, masked(fmt.Sprintf("image %s %s %v", m.Name, m.State, tags)))
	}
	image := func(id string) string {
		if name := names[id]; name != "" {
			return name
		}
		return id
	}
	for _, id := range w.cloud.Loose() {
		out = append(out, "loose snapshot "+masked(id))
	}
	parameter, points := strings.CutPrefix(g.Named, "resolve:ssm:")
	out = append(out, masked(fmt.Sprintf("group desired=%d min=%d max=%d suspended=%v tags=%v points=%v %s image=%s", g.Desired, g.Min,
		g.Max, g.Suspended, g.Tags, points, parameter, image(g.Image))))
	for _, in := range w.fleet.Instances() {
		files, err := w.fleet.ReadDisk(in.ID)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(files, func(path, _ string) bool { return path != nodes.MachineIDFile && path != nodes.ReceiptFile })
		m, _ := w.cloud.Machine(in.Name)
		out = append(out, masked(fmt.Sprintf("instance %s %s %s image=%s disk=%v", strings.ToLower(in.ComputerName), m.State, m.Lifecycle,
			image(m.Image), files)))
	}
	return out, nil
}

func (w *onAWS) learn(p *Process, c *Call, answer *reply) {
	if action := c.action(); answer.status == http.StatusOK &&
		(action == "DescribeAutoScalingGroups" || action == "DescribeLaunchTemplateVersions") {
		for _, pool := range w.state.Pools {
			p.read = pool.Revision
		}
	}
	c.Long = slices.Contains([]string{"CreateSnapshot", "RegisterImage", "StartInstances", "RunInstances"}, c.action())
}

// refusal is nobody's: the emulator answers in the words of each service.
func (w *onAWS) refusal(worlds.Fault, *Call) *reply { return nil }
