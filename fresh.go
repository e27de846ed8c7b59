package kamino

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AnnotationFreshness holds a node's Freshness as JSON. The agent on nodes of Kamino's images
// writes it with the node's own credential, so it is a claim and only shown.
const AnnotationFreshness = "kamino.dev/freshness"

// Freshness is how current the packages of a disk are, as the agent on it reports. Unknown fields
// are empty.
type Freshness struct {
	// PackageDigest is the SHA-256 in hex of the packages on the disk, one line each with name,
	// version and architecture, sorted; "" where there is no package manager.
	PackageDigest string `json:"packageDigest,omitempty"`
	PackageCount  int    `json:"packageCount,omitempty"`
	// PatchedAt is when the newest package was installed, by the node's clock.
	PatchedAt time.Time `json:"patchedAt,omitzero"`
	// Kernel is the newest kernel in /boot, which the next boot uses unless the boot loader is
	// configured otherwise.
	Kernel string `json:"kernel,omitempty"`
}

// Software is what a node runs, as its kubelet reports
// (https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/#NodeStatus).
type Software struct {
	Kernel, OS, Kubelet, Runtime string
	// Images are the images in the node's cache that the kubelet lists: the 50 largest by default
	// (nodeStatusMaxImages,
	// https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/).
	Images []CachedImage
}

// CachedImage is a container image that a node need not pull.
type CachedImage struct {
	Name  string `json:"name"` // by digest where the kubelet knows it
	Bytes int64  `json:"bytes"`
}

// TagValue is the longest value of a tag that describes the software of a version; MaxTag is that of all
// others. Azure and AWS accept 256 characters and 50 tags
// (https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources,
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html).
const TagValue = 128

// Tags returns the tags of a version that describe the software of its disk. Unknown values get no
// tag.
func (f Freshness) Tags(s Software) map[string]string {
	var bytes int64
	for _, image := range s.Images {
		bytes += max(image.Bytes, 0)
	}
	all := map[string]string{
		TagPackages: f.PackageDigest, TagKernel: cmp.Or(f.Kernel, s.Kernel), TagOS: s.OS, TagKubelet: s.Kubelet, TagRuntime: s.Runtime,
	}
	if f.PackageCount > 0 {
		all[TagPackageCount] = strconv.Itoa(f.PackageCount)
	}
	if !f.PatchedAt.IsZero() {
		all[TagPatched] = f.PatchedAt.UTC().Format(time.RFC3339)
	}
	if len(s.Images) > 0 {
		all[TagImages], all[TagImageBytes] = strconv.Itoa(len(s.Images)), strconv.FormatInt(bytes, 10)
	}
	for key, value := range all {
		if all[key] = CutText(Plain(value), TagValue); value == "" {
			delete(all, key)
		}
	}
	return all
}

// Freshness reads what a node reports about its packages; zero if it reports nothing.
func (n Node) Freshness() (f Freshness) {
	if readPlain([]byte(n.Annotations[AnnotationFreshness]), &f) != nil {
		return Freshness{}
	}
	return f
}

// AnnotationPackages holds the packages installed on a node, for the run that its nonce names: a
// list as base64 of gzip, in JSON. The agent writes it.
const AnnotationPackages = "kamino.dev/packages"

// MaxPackages is the greatest size of a list of packages, in bytes; a package takes about 50.
const MaxPackages = 1 << 20

// Packages reads the list of packages that the node wrote for an order. ok is false if there is
// none or it cannot be read. The list is a claim of the node until its digest is compared with a
// receipt.
func (n Node) Packages(run, nonce string) (list []string, ok bool) {
	var answer struct {
		Run, Nonce string
		List       []byte
	}
	if readPlain([]byte(n.Annotations[AnnotationPackages]), &answer) != nil || answer.Run != run || answer.Nonce != nonce {
		return nil, false
	}
	text, err := unpack(answer.List, MaxPackages)
	if err != nil {
		return nil, false
	}
	for line := range strings.Lines(string(text)) {
		list = append(list, Plain(strings.TrimSuffix(line, "\n")))
	}
	return list, true
}

// unpack decompresses gzip, up to a number of bytes.
func unpack(packed []byte, most int64) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(z, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("more than %d bytes", most)
	}
	return data, err
}

// DiskList lists the packages and cached images on the disk of a version, by name.
type DiskList struct {
	Packages []string // "NAME VERSION ARCHITECTURE" each, sorted
	Images   []CachedImage
}

// Lacks returns the images in a node's cache that are not on the list.
func (l DiskList) Lacks(n Node) []CachedImage {
	lacks := []CachedImage{}
	for _, image := range n.Software.Images {
		if !slices.ContainsFunc(l.Images, func(i CachedImage) bool { return i.Name == image.Name }) {
			lacks = append(lacks, image)
		}
	}
	return lacks
}

// ParseBuiltAt reads the tag in which the original script wrote when an image was built.
func ParseBuiltAt(text string) (time.Time, error) {
	// The original script wrote the local time of its pod, which is UTC in containers.
	return time.Parse("2006-01-02 15:04:05", text)
}
