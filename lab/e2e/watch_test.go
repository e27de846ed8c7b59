package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/crash"
	"kamino.dev/kamino/lab/labtest"
	"kamino.dev/kamino/lab/nodes"
)

// TestControllerWatch: a version whose new nodes do not become Ready is withdrawn by the controller
// that watches them, also of a prototype that is suspended; the version before it is next, and
// status, event, metric and notification say why.
func TestControllerWatch(t *testing.T) {
	t.Parallel()
	clock := &labtest.Clock{}
	k := newKept(t, func(o *lab.Options) { o.Clock = clock })
	k.env, k.binary = clock.Serve(t), filepath.Join(t.TempDir(), "kamino")
	if err := crash.BuildKamino(t.Context(), "../..", k.binary); err != nil {
		t.Fatal(err)
	}
	heard, address := newHeard(t), freeAddress(t)
	blue := k.pool("blue", 3)
	k.start("--notify-file", heard.file, "--metrics-address", address)
	const spec = `pool: blue, maxImageAge: 24h, watch: 2h, prove: {mode: None, bootBudget: 2m}`
	k.apply("blue", "{"+spec+"}")
	good := k.awaitReason("blue", v1alpha1.ReasonUpToDate).Status.Image
	clock.Advance(25 * time.Hour) // its successor is of another day
	var bad string
	labtest.Await(t, 2*time.Minute, "another version is next", func() string {
		p := k.get("blue")
		if p.Status.Next == nil || p.Status.Next.Version == good || p.Status.Run != nil {
			return fmt.Sprintf("%+v", p.Status)
		}
		bad = p.Status.Next.Version
		return ""
	})
	k.apply("blue", "{"+spec+", suspend: true}") // else a third would be made

	elders := blue.computers()
	k.lab.Nodes.Behave(func(in emulator.Instance) nodes.Behaviour {
		return nodes.Behaviour{NoKubelet: !slices.Contains(elders, strings.ToLower(in.ComputerName))}
	})
	sku, _ := k.lab.Cloud.Document(blue.id)["sku"].(map[string]any)
	blue.arm("PATCH", blue.id, fmt.Sprintf(`{"sku":{"name":%q,"capacity":6}}`, sku["name"]))
	labtest.Await(t, 3*time.Minute, "version "+bad+" is withdrawn", func() string {
		p := k.get("blue")
		if slices.ContainsFunc(p.Status.Withdrawn, func(w v1alpha1.Withdrawn) bool {
			return w.Version == bad && strings.Contains(w.Reason, "new nodes of pool blue were not Ready within 2m0s")
		}) && p.Status.Next != nil && p.Status.Next.Version == good {
			return ""
		}
		// Between two looks of the watch a minute passes, and nodes that live tell so.
		if clock.Asleep(30*time.Second) && clock.Now().Sub(blue.heartbeat(elders[0])) < 3*time.Minute {
			clock.Advance(time.Minute)
		}
		return fmt.Sprintf("%+v", p.Status)
	})
	k.events(map[string]int{"Normal KaminoPromoted blue": 2, "Warning KaminoWithdrawn blue": 1})
	labtest.Await(t, time.Minute, "the withdrawal is told", func() string {
		texts := heard.all()
		if len(texts) == 3 && strings.Contains(texts[2], "version "+bad+" of pool blue was withdrawn: ") && strings.Contains(texts[2], "new nodes boot from "+good) {
			return ""
		}
		return fmt.Sprintf("%q", texts)
	})
	token := k.administrator()
	labtest.Await(t, time.Minute, "the withdrawal is counted", func() string {
		text := metricsAt(t, address, token)
		if strings.Contains(text, `kamino_withdrawals_total{pool="blue"} 1`) {
			return ""
		}
		return text
	})
}

// heartbeat is when a node was heard of last.
func (p *pool) heartbeat(name string) (at time.Time) {
	p.Helper()
	for _, c := range p.get(name).Status.Conditions {
		if c.LastHeartbeatTime.After(at) {
			at = c.LastHeartbeatTime.Time
		}
	}
	return at
}

// administrator is a token that may see everything.
func (k *kept) administrator() string {
	k.Helper()
	_, err := k.lab.Client.RbacV1().ClusterRoleBindings().Create(k.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "administrator"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "default", Namespace: kamino.SystemNamespace}}}, metav1.CreateOptions{})
	if err != nil {
		k.Fatal(err)
	}
	token, err := k.lab.Client.CoreV1().ServiceAccounts(kamino.SystemNamespace).CreateToken(k.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		k.Fatal(err)
	}
	return token.Status.Token
}

func metricsAt(t *testing.T, address, token string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
