package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

var rewrite = flag.Bool("rewrite", false, "write the manifests that the chart gives")

// rendered returns what Helm makes of the chart with these values, as one text.
func rendered(t *testing.T, values string) (string, error) {
	t.Helper()
	chart, err := loader.Load("chart")
	if err != nil {
		t.Fatal(err)
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(chart, given,
		chartutil.ReleaseOptions{Name: "numalet", Namespace: "kube-system", IsInstall: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := engine.Render(chart, all)
	if err != nil {
		return "", err
	}
	var parts []string
	for name, text := range out {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text) != "" {
			parts = append(parts, strings.TrimSpace(text)+"\n")
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "---\n"), nil
}

// TestManifests: the manifests are what the chart gives with these values, and each is an object of the API,
// without fields that the API does not know.
func TestManifests(t *testing.T) {
	for file, values := range map[string]string{
		"numalet-gpu.yaml":     "{}",
		"numalet-gpu-dra.yaml": "{gpu: {dra: true}}",
		"numalet-eni.yaml": `{gpu: {enabled: false}, eni: {enabled: true,
			args: ["--virtual-of=*", "--resource=example.com/eni"]}}`,
	} {
		got, err := rendered(t, values)
		if err != nil {
			t.Fatal(err)
		}
		got = "# Made from cmd/packaging/chart: go -C cmd/packaging test -run TestManifests -rewrite\n" + got
		path := filepath.Join("manifests", file)
		if *rewrite {
			write(t, path, got, 0o644)
		}
		want, err := os.ReadFile(path)
		if err != nil || string(want) != got {
			t.Errorf("%s is not what the chart gives (-rewrite): %v\n%s", file, err, got)
		}
		kinds := objects(t, got)
		if drivers := strings.Contains(file, "dra"); kinds["DaemonSet"] != 1 || drivers != (kinds["ClusterRole"] == 1) {
			t.Errorf("%s has %v", file, kinds)
		}
	}
	if _, err := rendered(t, "{eni: {enabled: true}}"); err == nil || !strings.Contains(err.Error(), "eni.args") {
		t.Errorf("no interfaces are selected: %v", err)
	}
	if all, err := rendered(t, `{rootDir: /k, gpu: {privileged: true, runtimeClassName: nvidia}, eni: {enabled: true,
		dra: true, args: [--rdma]}}`); err != nil || objects(t, all)["DaemonSet"] != 2 ||
		!strings.Contains(all, "--kubelet-socket=/k/device-plugins/kubelet.sock") || strings.Contains(all, "/var/lib/kubelet") {
		t.Errorf("%v\n%s", err, all)
	}
}

// objects decodes each object strictly, and counts them by kind.
func objects(t *testing.T, text string) map[string]int {
	t.Helper()
	kinds := map[string]int{}
	for _, doc := range bytes.Split([]byte(text), []byte("\n---\n")) {
		var head struct{ Kind string }
		if err := yaml.Unmarshal(doc, &head); err != nil {
			t.Fatal(err)
		}
		into, known := map[string]any{"DaemonSet": &appsv1.DaemonSet{}, "ServiceAccount": &v1.ServiceAccount{},
			"ClusterRole": &rbacv1.ClusterRole{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{}}[head.Kind]
		if !known {
			t.Errorf("a %q", head.Kind)
			continue
		}
		if err := yaml.UnmarshalStrict(doc, into); err != nil {
			t.Errorf("%v in\n%s", err, doc)
		}
		kinds[head.Kind]++
	}
	return kinds
}
