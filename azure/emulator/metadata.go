package emulator

import (
	"encoding/json"
	"net/http"
	"sort"
	"strings"
)

// newestMetadata are the api-versions an IMDS error names.
var newestMetadata = []string{"2025-04-07", "2023-11-15", "2021-02-01"}

// Metadata is what one instance reaches at 169.254.169.254 and 168.63.129.16: the
// instance metadata service and the WireServer, told apart by path. instanceID is an ARM
// ID; the handler answers for whatever is there at the time of the request, and 410 when
// there is nothing.
//
// https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service
func (s *Server) Metadata(instanceID string) http.Handler {
	s.start()
	mux := http.NewServeMux()
	guest := &guest{s: s, id: instanceID}
	mux.HandleFunc("GET /metadata/identity/oauth2/token", guest.imds(guest.token))
	mux.HandleFunc("GET /metadata/instance", guest.imds(guest.document))
	mux.HandleFunc("GET /metadata/instance/{path...}", guest.imds(guest.document))
	mux.HandleFunc("GET /metadata/scheduledevents", guest.imds(guest.listEvents))
	mux.HandleFunc("POST /metadata/scheduledevents", guest.imds(guest.startEvents))
	mux.HandleFunc("GET /metadata/versions", guest.versions)
	guest.wireServer(mux)
	return mux
}

type guest struct {
	s  *Server
	id string
}

// imds checks what the service checks of every request.
func (g *guest) imds(answer func(http.ResponseWriter, *http.Request, Instance)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		version := r.URL.Query().Get("api-version")
		switch {
		case !fold(r.Header.Get("Metadata"), "true"):
			sendJSON(w, http.StatusBadRequest, object{"error": "Bad request. Required metadata header not specified"})
			return
		case r.Header.Get("X-Forwarded-For") != "":
			sendJSON(w, http.StatusBadRequest, object{"error": "Bad request. Requests with the X-Forwarded-For header are not served"})
			return
		case len(version) < len("2017-04-02") || strings.Count(version, "-") < 2:
			sendJSON(w, http.StatusBadRequest, object{
				"error":           "Bad request. api-version is invalid or was not specified in the request. For more information refer to aka.ms/azureimds",
				"newest-versions": newestMetadata})
			return
		}
		i, ok := g.s.Instance(g.id)
		if !ok {
			sendJSON(w, http.StatusGone, object{"error": "Gone"})
			return
		}
		answer(w, r, i)
	}
}

func (g *guest) versions(w http.ResponseWriter, _ *http.Request) {
	versions := append([]string(nil), newestMetadata...)
	sort.Strings(versions)
	sendJSON(w, http.StatusOK, object{"apiVersions": versions})
}

func sendJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Server", "IMDS/150.870.65.1854")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the guest may have gone away
}

// token is the managed identity endpoint.
func (g *guest) token(w http.ResponseWriter, r *http.Request, _ Instance) {
	q := r.URL.Query()
	if q.Get("resource") == "" {
		sendJSON(w, http.StatusBadRequest, object{"error": "invalid_request",
			"error_description": "Required query variable 'resource' is missing"})
		return
	}
	who, ok := g.s.managed(q)
	if !ok {
		sendJSON(w, http.StatusBadRequest, object{"error": "invalid_request", "error_description": "Identity not found"})
		return
	}
	// The client's clock judges these, so they follow the wall clock as the token does.
	expires := WallClock{}.Now().Unix() + tokenLifetime
	sendJSON(w, http.StatusOK, object{"access_token": g.s.mint(who, q.Get("resource")), "client_id": who.ClientID,
		"expires_in": decimal(tokenLifetime),
		"expires_on": decimal(int(expires)), "ext_expires_in": decimal(tokenLifetime), "not_before": decimal(int(expires) - tokenLifetime),
		"resource": q.Get("resource"), "token_type": "Bearer"})
}

// document is /metadata/instance and everything below it.
func (g *guest) document(w http.ResponseWriter, r *http.Request, i Instance) {
	all := object{"compute": g.s.computeMetadata(i), "network": object{"interface": g.s.networkMetadata(i)}}
	if fold(r.URL.Query().Get("extended"), "true") {
		all["extended"] = g.s.extendedMetadata(i)
	}
	var value any = all
	path := strings.Trim(r.PathValue("path"), "/")
	for _, name := range strings.Split(path, "/") {
		if name == "" {
			continue
		}
		inner, ok := value.(object)
		if ok {
			value, ok = inner[name]
		}
		if !ok {
			sendJSON(w, http.StatusNotFound, object{"error": "Not found"})
			return
		}
	}
	leaf, isLeaf := value.(string)
	if !isLeaf {
		sendJSON(w, http.StatusOK, value)
		return
	}
	if r.URL.Query().Get("format") != "text" {
		sendJSON(w, http.StatusBadRequest, object{
			"error": "Bad request. The requested format is not supported for this endpoint: use format=text"})
		return
	}
	if strings.HasSuffix(path, "/userData") && r.URL.Query().Get("api-version") < "2021-01-01" {
		sendJSON(w, http.StatusNotFound, object{"error": "Not found"})
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(leaf)) // the guest may have gone away
}

// extendedMetadata is what provisioning agents ask for besides: cloud-init (DataSourceAzure.py) and
// azure-init read ppsType from it. The form is theirs; Microsoft documents none.
func (s *Server) extendedMetadata(i Instance) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	pps := "None"
	if pool := s.begin().get(i.PoolID); pool != nil && text(pool.facts, "pps") != "" {
		pps = text(pool.facts, "pps")
	}
	return object{"compute": object{"hasCustomData": i.CustomData != "", "ppsType": pps}}
}

// computeMetadata is the compute document: every value a string, "" where there is none.
func (s *Server) computeMetadata(i Instance) object {
	s.mu.Lock()
	t := s.begin()
	doc := object{}
	if r := t.get(i.ID); r != nil {
		doc = clone(r.doc)
	}
	s.mu.Unlock()
	var tags []string
	list := []any{}
	for name := range i.Tags {
		tags = append(tags, name)
	}
	sort.Strings(tags)
	flat := make([]string, 0, len(tags))
	for _, name := range tags {
		flat = append(flat, name+":"+i.Tags[name])
		list = append(list, object{"name": name, "value": i.Tags[name]})
	}
	reference := object{"id": "", "offer": "", "publisher": "", "sku": "", "version": "", "exactVersion": i.ExactVersion}
	for name := range reference {
		if value := text(doc, "properties", "storageProfile", "imageReference", name); value != "" {
			reference[name] = value
		}
	}
	flexible := object{"id": ""}
	pool := i.Pool
	if i.Flexible {
		flexible["id"], pool = i.PoolID, ""
	}
	zone := ""
	if zones, ok := doc["zones"].([]any); ok && len(zones) > 0 {
		zone, _ = zones[0].(string)
	}
	secure := text(doc, "properties", "securityProfile", "securityType") != ""
	return object{
		"azEnvironment": "AzurePublicCloud", "location": i.Location, "name": i.Name, "vmId": i.VMID, "vmSize": i.Size, "zone": zone,
		"resourceId": i.ID, "resourceGroupName": i.ResourceGroup, "subscriptionId": i.SubscriptionID, "vmScaleSetName": pool,
		"virtualMachineScaleSet": flexible, "tags": strings.Join(flat, ";"), "tagsList": list, "userData": i.UserData, "customData": "",
		"osType": map[bool]string{true: "Windows", false: "Linux"}[i.Windows], "priority": map[bool]string{true: "Spot"}[i.Spot],
		"offer": text(reference, "offer"), "publisher": text(reference, "publisher"), "sku": text(reference, "sku"),
		"version":  i.ExactVersion,
		"provider": "Microsoft.Compute", "platformFaultDomain": "0", "platformUpdateDomain": "0", "placementGroupId": "",
		"evictionPolicy":             "",
		"isHostCompatibilityLayerVm": "false", "licenseType": "", "plan": object{"name": "", "product": "", "publisher": ""},
		"publicKeys": publicKeys(doc),
		"osProfile": object{"adminUsername": text(doc, "properties", "osProfile", "adminUsername"), "computerName": i.ComputerName,
			"disablePasswordAuthentication": "true"},
		"securityProfile": object{"secureBootEnabled": bit(secure), "virtualTpmEnabled": bit(secure), "securityType": i.SecurityType,
			"encryptionAtHost": "false"},
		"storageProfile": object{"dataDisks": []any{}, "imageReference": reference, "osDisk": object{
			"name": text(doc, "properties", "storageProfile", "osDisk", "name"), "osType": "Linux", "createOption": "FromImage",
			"diskSizeGB": "30",
			"caching":    text(doc, "properties", "storageProfile", "osDisk", "caching"), "managedDisk": object{
				"id": text(doc, "properties", "storageProfile", "osDisk", "managedDisk", "id"), "storageAccountType": "Premium_LRS"}}},
	}
}

// publicKeys are the administrator's, as the model has them.
func publicKeys(doc object) []any {
	keys := []any{}
	for _, k := range items(doc, "properties", "osProfile", "linuxConfiguration", "ssh", "publicKeys") {
		keys = append(keys, object{"keyData": text(k, "keyData"), "path": text(k, "path")})
	}
	return keys
}

// networkMetadata are the network cards, where [Machines] can tell: one for each that is attached.
func (s *Server) networkMetadata(i Instance) []any {
	networked, ok := s.Machines.(Networked)
	if !ok {
		return []any{}
	}
	mac, address, ok := networked.Interface(i)
	if !ok {
		return []any{}
	}
	return []any{object{
		"ipv4": object{"ipAddress": array(object{"privateIpAddress": address.Addr().String(), "publicIpAddress": ""}),
			"subnet": array(object{"address": address.Masked().Addr().String(), "prefix": decimal(address.Bits())})},
		"ipv6":       object{"ipAddress": []any{}},
		"macAddress": strings.ToUpper(strings.ReplaceAll(mac, ":", "")),
	}}
}

func bit(b bool) string {
	if b {
		return "true"
	}
	return "false"
}
