package manifest

import (
	"slices"
	"strings"
	"testing"
)

const askedSpec = "{containers: [{name: main, image: app, resources: {limits: {cpu: 2}}}]}"

func TestRead(t *testing.T) {
	pod := func(name string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: " +
			askedSpec + "\n"
	}
	item := "{metadata: {name: c, namespace: team}, spec: " + askedSpec + "}"
	deployment := "apiVersion: apps/v1\nkind: Deployment\n" +
		"metadata: {name: web, namespace: team}\n" +
		"spec: {replicas: 3, template: {metadata: {labels: {a: b}}, spec: " + askedSpec + "}}\n"
	for name, tc := range map[string]struct {
		text string
		want []string // namespace/name
		warn string
	}{
		"one": {pod("a"), []string{"default/a"}, ""},
		"several": {"---\n" + pod("a") + "---\n# nothing\n---\n" + pod("b"),
			[]string{"default/a", "default/b"}, ""},
		"List": {"apiVersion: v1\nkind: List\nitems:\n" +
			"- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: " + askedSpec + "}\n",
			[]string{"default/a"}, ""},
		"PodList": {"apiVersion: v1\nkind: PodList\nitems: [" + item + "]\n",
			[]string{"team/c"}, ""},
		"workload": {deployment, []string{"team/web"}, ""},
		"a workload with what is beside it": {deployment + "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n" +
			"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n", []string{"team/web"},
			"document 2: Service web of v1 is skipped: it has no pods; document 3: ConfigMap settings of v1 is skipped"},
		"a template of claims": {pod("a") + "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\n" +
			"metadata: {name: gpu}\n", []string{"default/a"}, ""},
		"an old template": {pod("a") + "---\napiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaimTemplate\n" +
			"metadata: {name: gpu}\n", []string{"default/a"}, "gpu is skipped: it is of resource.k8s.io/v1beta1, and only"},
		"generated": {strings.Replace(pod("a-"), "name: a-", "generateName: a-", 1),
			[]string{"default/a"}, ""},
		"unknown field": {strings.Replace(pod("a"), "spec:", "sepc: 1\nspec:", 1),
			[]string{"default/a"}, "sepc"},
		"secret": {pod("a")[:len(pod("a"))-2] + ", imagePullSecrets: [{name: s}]}\n",
			[]string{"default/a"}, "it refers to secrets"},
	} {
		m, err := Read([]byte(tc.text), false, nil)
		var got []string
		for _, p := range m.Pods {
			got = append(got, p.Namespace+"/"+p.Name)
			if p.Spec.Containers[0].Resources.Requests.Cpu().Value() != 2 {
				t.Errorf("%s: %s has no defaults", name, p.Name)
			}
		}
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, tc.want)
		}
		if warned := strings.Join(m.Warnings, "; "); tc.warn == "" && warned != "" ||
			!strings.Contains(warned, tc.warn) {
			t.Errorf("%s: warnings %q, want %q", name, warned, tc.warn)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":    {"# only words\n", "is empty"},
		"no list":    {"apiVersion: v1\nkind: List\nitems: 3\n", "items: want a list"},
		"empty list": {"apiVersion: v1\nkind: List\nitems: []\n", "lists no pods"},
		"nested list": {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List}]\n",
			"items[0]: want Pods"},
		"other kind": {"apiVersion: v1\nkind: Service\n",
			"want Pods, a List of them or a workload"},
		"no kind": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: " + askedSpec + "\n---\nmetadata: {name: b}\n",
			`document 2: want Pods`},
		"no template": {"apiVersion: apps/v1\nkind: Deployment\nspec: {}\n",
			"the Deployment has no spec.template"},
		"no name": {"apiVersion: v1\nkind: Pod\nspec: " + askedSpec + "\n", "metadata.name"},
		"second": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: " + askedSpec +
			"\n---\nkind: [\n", "document 2: the manifest is not YAML"},
		"wrong type": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: 3}\n",
			"spec.containers"},
		"invalid": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n" +
			"spec: {containers: [{name: A_, image: a}]}\n", "spec.containers[0].name"},
	} {
		m, err := Read([]byte(tc.text), false, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) ||
			len(m.Pods) > 0 {
			t.Errorf("%s: %v, %v; want an error with %q", name, m.Pods, err, tc.want)
		}
	}
}
