package cluster_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// provider is a credential provider that records its requests.
const provider = `#!/bin/sh
cat >> "$0.asked"
echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1",
"cacheKeyType":"Registry","auth":{"private.test":{"username":"u","password":"p"},
"docker.io":{"username":"u","password":"p"}}}'
`

// TestCredentialProvider: a provider gets a token of the pod's service account and the account's
// annotations, and pods of that account may use an image that was pulled with its answer. Both
// agents send the same.
func TestCredentialProvider(t *testing.T) {
	asked := map[string][]map[string]any{}
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) { asked[agent] = askedProvider(t, agent) })
	}
	if diff := cmp.Diff(asked["kubelet"], asked["numalet"]); diff != "" {
		t.Errorf("-kubelet +numalet\n%s", diff)
	}
}

// askedProvider returns an agent's requests to a provider for the images of three pods. "token"
// replaces tokens.
func askedProvider(t *testing.T, name string) (requests []map[string]any) {
	c := rig.Start(t)
	agent := harness.New(t)
	if name == "kubelet" {
		rig.StockKubelet(t, agent)
	}
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(agent.Dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	program := write("cloud", provider, 0o755)
	config := write("providers.yaml", `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers: [{name: cloud, matchImages: [private.test, docker.io],
 defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1,
 tokenAttributes: {serviceAccountTokenAudience: cloud.test, cacheType: ServiceAccount,
  requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [cloud.test/role]}}]
`, 0o644)
	agent.Args = append(agent.Args, "--image-credential-provider-config="+config,
		"--image-credential-provider-bin-dir="+agent.Dir)
	n := c.Join(agent, "providers-"+name)
	c.Apply(fmt.Sprintf(`
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: audience-%[1]s}, rules: [
 {apiGroups: [""], resources: [cloud.test], verbs: [request-serviceaccounts-token-audience]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: audience-%[1]s},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: audience-%[1]s},
 subjects: [{kind: Group, name: "system:nodes", apiGroup: rbac.authorization.k8s.io}]}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, annotations: {cloud.test/role: r1}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: other, annotations: {cloud.test/role: r2}}}
`, c.Namespace))
	t.Cleanup(func() {
		c.MustRun("delete", "clusterrole,clusterrolebinding", "audience-"+c.Namespace)
	})
	n.Start()
	c.AwaitReady(n.Name)
	pods := 0
	run := func(account, image string) {
		pods++
		pod := fmt.Sprint("pod", pods)
		c.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {
 nodeName: %s, tolerations: [{operator: Exists}], terminationGracePeriodSeconds: 0,
 automountServiceAccountToken: false, serviceAccountName: %s,
 containers: [{name: main, image: "%s", imagePullPolicy: IfNotPresent}]}}`,
			pod, n.Name, account, image))
		await(t, c, c.Namespace, pod, runs)
	}
	for i, account := range []string{"robot", "robot", "other"} {
		run(account, "private.test/app:1")
		want := []int{1, 1, 2}[i]
		if got := n.Runtime.State().Calls["PullImage"]; got != want {
			t.Errorf("%d pulls after pod %d, want %d", got, i+1, want)
		}
	}
	run("other", "app:1")
	file, err := os.Open(program + ".asked")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for all := json.NewDecoder(file); all.More(); {
		one := map[string]any{}
		if err := all.Decode(&one); err != nil {
			t.Fatal(err)
		}
		if token, _ := one["serviceAccountToken"].(string); strings.HasPrefix(token, "ey") {
			one["serviceAccountToken"] = "token"
		}
		requests = append(requests, one)
	}
	want := func(image, role string) map[string]any {
		return map[string]any{"kind": "CredentialProviderRequest",
			"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "image": image,
			"serviceAccountToken":       "token",
			"serviceAccountAnnotations": map[string]any{"cloud.test/role": role}}
	}
	if diff := cmp.Diff([]map[string]any{want("private.test/app", "r1"),
		want("private.test/app", "r2"), want("docker.io/library/app", "r2")}, requests); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	return requests
}
