package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// provider is a credential provider that notes what it is asked.
const provider = `#!/bin/sh
cat >> "$0.asked"
echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1",
"cacheKeyType":"Registry","auth":{"private.test":{"username":"u","password":"p"}}}'
`

// TestCredentialProvider: a provider is asked with a token of the pod's service account and its
// annotations, and an image that was pulled with what it answered is for pods of that account.
func TestCredentialProvider(t *testing.T) {
	c := rig.Start(t)
	agent := harness.New(t)
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(agent.Dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	program := write("cloud", provider, 0o755)
	file := write("providers.yaml", `{apiVersion: kubelet.config.k8s.io/v1,
kind: CredentialProviderConfig, providers: [{name: cloud, matchImages: [private.test],
defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1,
tokenAttributes: {serviceAccountTokenAudience: cloud.test, cacheType: ServiceAccount,
requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [cloud.test/role]}}]}`, 0o644)
	agent.Args = append(agent.Args, "--image-credential-provider-config="+file,
		"--image-credential-provider-bin-dir="+agent.Dir)
	n := c.Join(agent, "providers")
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
	run := func(account string) {
		pods++
		name := fmt.Sprint("pod", pods)
		c.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {
 nodeName: %s, tolerations: [{operator: Exists}], terminationGracePeriodSeconds: 0,
 automountServiceAccountToken: false, serviceAccountName: %s,
 containers: [{name: main, image: "private.test/app:1", imagePullPolicy: IfNotPresent}]}}`,
			name, n.Name, account))
		await(t, c, c.Namespace, name, runs)
	}
	for i, account := range []string{"robot", "robot", "other"} {
		run(account)
		want := []int{1, 1, 2}[i]
		if got := n.Runtime.State().Calls["PullImage"]; got != want {
			t.Errorf("%d pulls after pod %d, want %d", got, i+1, want)
		}
	}
	text, err := os.ReadFile(program + ".asked")
	if err != nil {
		t.Fatal(err)
	}
	requests := strings.Split(strings.TrimPrefix(string(text), "{"), "}{")
	if len(requests) != 2 || !strings.Contains(requests[0], `"serviceAccountToken":"ey`) ||
		!strings.Contains(requests[0], `"cloud.test/role":"r1"`) ||
		!strings.Contains(requests[1], `"cloud.test/role":"r2"`) ||
		!strings.Contains(requests[0], `"image":"private.test/app:1"`) {
		t.Errorf("asked %q", requests)
	}
}
