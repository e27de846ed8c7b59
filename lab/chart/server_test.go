package chart

import (
	"testing"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// install is "helm install --dry-run=server" against the lab.
func TestInstallDryRunServer(t *testing.T) {
	for _, use := range uses {
		t.Run(use.name, func(t *testing.T) {
			flags := genericclioptions.NewConfigFlags(false)
			flags.KubeConfig = &shared.Kubeconfig
			var config action.Configuration
			if err := config.Init(flags, namespace, "memory", func(string, ...any) {}); err != nil {
				t.Fatal(err)
			}
			c, err := loader.Load(chartDir)
			if err != nil {
				t.Fatal(err)
			}
			install := action.NewInstall(&config)
			install.ReleaseName, install.Namespace, install.DryRun, install.DryRunOption = "rel", namespace, true, "server"
			release, err := install.RunWithContext(t.Context(), c, values(t, use.sets...))
			if err != nil {
				t.Fatal(err)
			}
			if release.Info.Notes == "" || release.Manifest == "" {
				t.Errorf("notes %q, manifest of %d bytes", release.Info.Notes, len(release.Manifest))
			}
		})
	}
}

// The API server itself accepts every object, with strict validation of fields.
func TestServerSideValidation(t *testing.T) {
	for _, use := range uses {
		t.Run(use.name, func(t *testing.T) {
			for _, o := range objects(t, "rel", use.sets...) {
				create(t, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			}
		})
	}
	typo := objects(t, "rel")[0]
	if err := unstructured.SetNestedField(typo.Object, "x", "spec", "backofLimit"); err != nil {
		t.Fatal(err)
	}
	if err := tryCreate(t, typo, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}); err == nil {
		t.Error("a field that does not exist was accepted: the check is worth nothing")
	}
}

func create(t *testing.T, o *unstructured.Unstructured, opts metav1.CreateOptions) {
	t.Helper()
	if err := tryCreate(t, o, opts); err != nil {
		t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
	}
}

func tryCreate(t *testing.T, o *unstructured.Unstructured, opts metav1.CreateOptions) error {
	t.Helper()
	groups, err := restmapper.GetAPIGroupResources(shared.Client.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	mapping, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(shared.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = client.Resource(mapping.Resource).Namespace(o.GetNamespace())
	}
	_, err = resource.Create(t.Context(), o, opts)
	return err
}
