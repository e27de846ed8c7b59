package azure

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// heard tells of each request as it ends.
type heard func(call, code string)

// Do implements policy.Policy.
func (h heard) Do(req *policy.Request) (*http.Response, error) {
	resp, err := req.Next()
	code := "error"
	if resp != nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	h(callOf(req.Raw().Method, req.Raw().URL.Path), code)
	return resp, err
}

// callOf is a request without the names in it: "GET Microsoft.Compute/virtualMachineScaleSets".
// Types and names of resources alternate in a path
// (https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules); one of
// another form is "other", so that there are never more calls than types.
func callOf(method, path string) string {
	path, namespace := strings.Trim(path, "/"), ""
	if at := strings.LastIndex(strings.ToLower(path), "providers/"); at >= 0 {
		namespace, path, _ = strings.Cut(path[at+len("providers/"):], "/")
		namespace += "/"
	}
	var types []string
	for i, word := range strings.Split(path, "/") {
		if i%2 == 0 {
			types = append(types, word)
		}
	}
	call := namespace + strings.Join(types, "/")
	if strings.Trim(strings.ToLower(call), "abcdefghijklmnopqrstuvwxyz./") != "" || len(call) > 100 {
		call = "other"
	}
	return method + " " + call
}
