package platform

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// WireServer is the host's endpoint through which a guest says that it is provisioned
// (https://learn.microsoft.com/azure/virtual-machines/linux/no-agent).
type WireServer struct {
	// Endpoint is http://168.63.129.16 on Azure.
	Endpoint string
	Agent    string // name and version of this program
	Client   *http.Client
	Wait     func(ctx context.Context, d time.Duration) error
	Attempts int
}

// DefaultWireServer is the address on every Azure network.
const DefaultWireServer = "http://168.63.129.16"

const wireVersion = "2012-11-30"

// GoalState is what the platform wants of this machine; only its names matter here.
type GoalState struct {
	Incarnation string
	ContainerID string
	InstanceID  string
}

// ParseGoalState decodes the goal state.
func ParseGoalState(data []byte) (GoalState, error) {
	var doc struct {
		XMLName     xml.Name `xml:"GoalState"`
		Incarnation string   `xml:"Incarnation"`
		Container   struct {
			ContainerID string   `xml:"ContainerId"`
			Instances   []string `xml:"RoleInstanceList>RoleInstance>InstanceId"`
		} `xml:"Container"`
	}
	if err := xml.Unmarshal(data, &doc); err != nil {
		return GoalState{}, fmt.Errorf("decode goal state: %w", err)
	}
	if doc.Incarnation == "" || doc.Container.ContainerID == "" || len(doc.Container.Instances) == 0 || doc.Container.Instances[0] == "" {
		return GoalState{}, errors.New("decode goal state: incarnation, container or instance is missing")
	}
	return GoalState{doc.Incarnation, doc.Container.ContainerID, doc.Container.Instances[0]}, nil
}

// Report tells the platform that the machine is ready, or with a reason that it is not. It tries
// the WireServer's goal state and health first and the JSON endpoint of newer hosts after it, each
// a few times.
func (w WireServer) Report(ctx context.Context, ready bool, reason string) error {
	var problems error
	pause := 200 * time.Millisecond
	for range max(w.Attempts, 1) {
		wire := w.health(ctx, ready, reason)
		if wire == nil {
			return nil
		}
		newer := w.healthJSON(ctx, ready, reason)
		if newer == nil {
			return nil
		}
		problems = errors.Join(wire, newer)
		if err := w.Wait(ctx, pause); err != nil {
			break
		}
		pause = min(pause*2, 10*time.Second)
	}
	return fmt.Errorf("report to platform: %w", problems)
}

func (w WireServer) health(ctx context.Context, ready bool, reason string) error {
	versions, err := w.do(ctx, http.MethodGet, "/?comp=versions", "", nil)
	if err != nil {
		return err
	}
	if !bytes.Contains(versions, []byte(wireVersion)) {
		return fmt.Errorf("choose WireServer version: %s is not offered", wireVersion)
	}
	data, err := w.do(ctx, http.MethodGet, "/machine/?comp=goalstate", "", nil)
	if err != nil {
		return err
	}
	goal, err := ParseGoalState(data)
	if err != nil {
		return err
	}
	body, err := healthXML(goal, ready, reason)
	if err != nil {
		return err
	}
	_, err = w.do(ctx, http.MethodPost, "/machine/?comp=health", "text/xml;charset=utf-8", body)
	return err
}

type healthDocument struct {
	XMLName     xml.Name    `xml:"Health"`
	Incarnation string      `xml:"GoalStateIncarnation"`
	ContainerID string      `xml:"Container>ContainerId"`
	InstanceID  string      `xml:"Container>RoleInstanceList>Role>InstanceId"`
	State       string      `xml:"Container>RoleInstanceList>Role>Health>State"`
	Details     *subDetails `xml:"Container>RoleInstanceList>Role>Health>Details"`
}

type subDetails struct {
	SubStatus   string `xml:"SubStatus" json:"subStatus"`
	Description string `xml:"Description" json:"description"`
}

// descriptionMost is the length to which azure-init and cloud-init cut a failure's description.
const descriptionMost = 512

func details(ready bool, reason string) (state string, d *subDetails) {
	if ready {
		return "Ready", nil
	}
	text := []rune(reason)
	return "NotReady", &subDetails{"ProvisioningFailed", string(text[:min(len(text), descriptionMost)])}
}

func healthXML(g GoalState, ready bool, reason string) ([]byte, error) {
	doc := healthDocument{Incarnation: g.Incarnation, ContainerID: g.ContainerID, InstanceID: g.InstanceID}
	doc.State, doc.Details = details(ready, reason)
	body, err := xml.Marshal(doc)
	return append([]byte(xml.Header), body...), err
}

func (w WireServer) healthJSON(ctx context.Context, ready bool, reason string) error {
	var doc struct {
		State   string      `json:"state"`
		Details *subDetails `json:"details,omitempty"`
	}
	doc.State, doc.Details = details(ready, reason)
	body, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	_, err = w.do(ctx, http.MethodPost, "/provisioning/health", "application/json", body)
	return err
}

func (w WireServer) do(ctx context.Context, method, path, kind string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.Endpoint+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("x-ms-version", wireVersion)
	req.Header.Set("x-ms-agent-name", w.Agent)
	req.Header.Set("x-ms-guest-agent-name", w.Agent)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := w.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, metadataMost))
	if err != nil {
		return nil, err
	}
	if !slices.Contains([]int{http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent}, resp.StatusCode) {
		return nil, &Status{URL: w.Endpoint + path, Code: resp.StatusCode, Body: brief(data)}
	}
	return data, nil
}

// Provisioning is what the CD's ovf-env.xml says.
type Provisioning struct {
	HostName string
	UserName string
	PPSType  string
}

// ParseOVF decodes ovf-env.xml. The password and the custom data in it are left alone.
func ParseOVF(data []byte) (Provisioning, error) {
	var doc struct {
		XMLName xml.Name `xml:"Environment"`
		Linux   struct {
			HostName string `xml:"HostName"`
			UserName string `xml:"UserName"`
		} `xml:"ProvisioningSection>LinuxProvisioningConfigurationSet"`
		Platform struct {
			Preprovisioned     string `xml:"PreprovisionedVm"`
			PreprovisionedType string `xml:"PreprovisionedVMType"`
			PreprovisionedAlt  string `xml:"PreprovisionedVmType"`
		} `xml:"PlatformSettingsSection>PlatformSettings"`
	}
	if err := xml.Unmarshal(data, &doc); err != nil {
		return Provisioning{}, fmt.Errorf("decode ovf-env.xml: %w", err)
	}
	p := Provisioning{HostName: strings.TrimSpace(doc.Linux.HostName), UserName: strings.TrimSpace(doc.Linux.UserName),
		PPSType: strings.TrimSpace(doc.Platform.PreprovisionedType + doc.Platform.PreprovisionedAlt)}
	if p.PPSType == "" && strings.EqualFold(strings.TrimSpace(doc.Platform.Preprovisioned), "true") {
		p.PPSType = "Running" // the older form has no type and means this one (cloud-init DataSourceAzure.py)
	}
	return p, nil
}

// Parked reports whether a kind of pre-provisioning means that this machine waits for its real
// owner.
func Parked(ppsType string) bool {
	return ppsType != "" && !strings.EqualFold(ppsType, "None")
}
