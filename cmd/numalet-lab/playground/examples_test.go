package playground

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/examples"
)

// The pods to begin with ask for what the playground's plugins offer.
func TestExamplesAskForWhatThereIs(t *testing.T) {
	for _, test := range []struct {
		Options
		offered []string
	}{
		{Options{}, []string{"example.com/gpu", "example.com/nic"}},
		{Options{Cluster: "bin"}, []string{"example.com/gpu", "example.com/nic"}},
		{Options{Runtime: Containerd}, []string{"example.com/gpu"}},
		{Options{Cluster: "bin", Runtime: Containerd}, []string{"example.com/gpu"}},
		{Options{GPU: "dgxh100"}, []string{"nvidia.com/gpu"}},
		{Options{Cluster: "bin", GPU: "dgxh100"}, []string{"nvidia.com/gpu"}},
		{Options{Cluster: "bin", GPU: "dgxh100", DRA: true}, nil},
	} {
		examples := test.examples()
		names, err := fs.Glob(examples, "*.yaml")
		if err != nil || len(names) == 0 {
			t.Fatalf("%v: %d examples", err, len(names))
		}
		asked := map[string]bool{}
		for _, name := range names {
			text, err := fs.ReadFile(examples, name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`[\w.]+/(gpu|nic)`).FindAllString(string(text), -1) {
				asked[m] = true
			}
		}
		for _, resource := range test.offered {
			delete(asked, resource)
		}
		if len(asked) > 0 {
			t.Errorf("%+v: the examples ask for %v, offered are %q", test.Options, asked, test.offered)
		}
	}
}

// The examples of claims have no field that the API lacks, and ask for classes and templates that
// there are.
func TestExamplesOfClaims(t *testing.T) {
	names := map[string]bool{} // of classes and templates
	var asked []string
	for _, from := range []fs.FS{folder(examples.Cluster, "cluster/claims"),
		folder(examples.Claims, "claims")} {
		files, err := fs.Glob(from, "*.yaml")
		if err != nil || len(files) < 2 {
			t.Fatalf("%v: %q", err, files)
		}
		for _, file := range files {
			text, err := fs.ReadFile(from, file)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range strings.Split(string(text), "\n---\n") {
				name, asks, err := readExample([]byte(one))
				if err != nil {
					t.Errorf("%s: %v", file, err)
				}
				names[name] = true
				asked = append(asked, asks...)
			}
		}
	}
	for _, name := range asked {
		if !names[name] {
			t.Errorf("there is no class or template %s", name)
		}
	}
}

// readExample returns an object's name, and the classes and templates that it asks for.
func readExample(text []byte) (name string, asks []string, err error) {
	var kind struct{ Kind string }
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return "", nil, err
	}
	var class resourcev1.DeviceClass
	var template resourcev1.ResourceClaimTemplate
	var claim resourcev1.ResourceClaim
	var deployment appsv1.Deployment
	var pod v1.Pod
	objects := map[string]interface{ GetName() string }{"DeviceClass": &class, "Pod": &pod,
		"ResourceClaimTemplate": &template, "ResourceClaim": &claim, "Deployment": &deployment}
	err = yaml.UnmarshalStrict(text, objects[kind.Kind])
	requests := append(template.Spec.Spec.Devices.Requests, claim.Spec.Devices.Requests...)
	for _, r := range requests {
		asks = append(asks, r.Exactly.DeviceClassName)
	}
	for _, c := range append(pod.Spec.ResourceClaims, deployment.Spec.Template.Spec.ResourceClaims...) {
		asks = append(asks, *c.ResourceClaimTemplateName)
	}
	return objects[kind.Kind].GetName(), asks, err
}

// Claims need a cluster and GPUs, which the error says.
func TestClaimsNeedACluster(t *testing.T) {
	for _, o := range []Options{{DRA: true}, {DRA: true, GPU: "dgxh100"}, {DRA: true, Cluster: "bin"}} {
		err := o.check()
		if err == nil || !strings.Contains(err.Error(), "give --gpu and --cluster too") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
