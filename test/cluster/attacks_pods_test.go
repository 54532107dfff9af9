package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/test/cluster/faults"
	"github.com/numalet/numalet/test/harness"
)

// says waits until a pod's status or an event contains a text.
func (a *attacked) says(name, text string) {
	a.t.Helper()
	harness.Eventually(a.t, fmt.Sprintf("pod %s says %q", name, text), func() error {
		p, err := get(a.t, a.c, a.c.Namespace, name)
		if err != nil {
			return err
		}
		if all := messagesOf(a.t, a.c, p); !strings.Contains(all, text) {
			return fmt.Errorf("it says %q", all)
		}
		return nil
	})
}

// mounts makes the pod mount a volume.
func mounts(p *v1.Pod, source v1.VolumeSource) {
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: source}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
}

// muchDownward: thousands of files of large annotations.
func (a *attacked) muchDownward() {
	count := 3000 + a.random.IntN(3000)
	a.pod("downward", func(p *v1.Pod) {
		p.Annotations = map[string]string{"a": strings.Repeat("x", 200<<10)}
		var items []v1.DownwardAPIVolumeFile
		for i := range count {
			items = append(items, v1.DownwardAPIVolumeFile{Path: fmt.Sprint(i),
				FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"}})
		}
		source := v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items}}
		if a.random.IntN(2) == 0 {
			source = v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{
					{DownwardAPI: &v1.DownwardAPIProjection{Items: items}}}}}
		}
		mounts(p, source)
	})
	a.says("downward", "use fewer sources")
	a.remove("downward")
}

// muchEnvironment: one config map under thousands of prefixes.
func (a *attacked) muchEnvironment() {
	data := map[string]string{}
	for i := range 5000 {
		data[fmt.Sprint("K", i)] = "v"
	}
	a.configMap("variables", data)
	count := 3000 + a.random.IntN(3000)
	a.pod("variables", func(p *v1.Pod) {
		for i := range count {
			p.Spec.Containers[0].EnvFrom = append(p.Spec.Containers[0].EnvFrom, v1.EnvFromSource{
				Prefix: fmt.Sprintf("P%d_", i), ConfigMapRef: &v1.ConfigMapEnvSource{
					LocalObjectReference: v1.LocalObjectReference{Name: "variables"}}})
		}
	})
	a.says("variables", "larger than 1 MiB")
	a.remove("variables")
}

// nestedPaths: a file that is the directory of another one.
func (a *attacked) nestedPaths() {
	a.pod("nested", func(p *v1.Pod) {
		var items []v1.DownwardAPIVolumeFile
		for _, path := range []string{"x", "x/y"} {
			items = append(items, v1.DownwardAPIVolumeFile{Path: path,
				FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}})
		}
		mounts(p, v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items}})
	})
	a.says("nested", `invalid paths "x" and "x/y"`)
	a.remove("nested")
}

// manyKeys: a config map of 9,000 keys that changes.
func (a *attacked) manyKeys() {
	data := map[string]string{}
	for i := range 9000 {
		data[fmt.Sprint("k", i)] = "v"
	}
	a.configMap("keys", data)
	a.pod("keys", func(p *v1.Pod) {
		mounts(p, v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "keys"}}})
	})
	p := await(a.t, a.c, a.c.Namespace, "keys", runs)
	for i := range 3 {
		key := fmt.Sprint("k", a.random.IntN(9000))
		a.c.MustRun("patch", "configmap", "keys", "--patch",
			fmt.Sprintf(`{"data": {%q: "%d"}}`, key, i))
		awaitFile(a.t, a.n, p, "kubernetes.io~configmap/v/"+key, fmt.Sprint(i))
	}
	a.remove("keys")
}

// logLinks: somebody who may write among logs replaces a directory by a link, or a log by a hard
// link.
func (a *attacked) logLinks() {
	secret := a.t.TempDir()
	a.pod("linked", nil)
	p := await(a.t, a.c, a.c.Namespace, "linked", runs)
	dir := filepath.Join(a.n.Settings["podLogsDir"].(string),
		fmt.Sprintf("%s_linked_%s", a.c.Namespace, p.UID), "main")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(secret, "0.log"),
		[]byte("2026-01-02T03:04:05.678901234Z stdout F secret\n"), 0o600)); err != nil {
		a.t.Fatal(err)
	}
	plant := func() error { return os.Symlink(secret, dir) }
	if a.random.IntN(2) == 0 {
		plant = func() error {
			return errors.Join(os.Mkdir(dir, 0o755),
				os.Link(filepath.Join(secret, "0.log"), filepath.Join(dir, "0.log")))
		}
	}
	if err := errors.Join(os.RemoveAll(dir), plant()); err != nil {
		a.t.Fatal(err)
	}
	if out, err := a.c.Run("logs", "linked"); err == nil || strings.Contains(out, "secret") {
		a.t.Errorf("a link in the place of logs shows %q, %v", out, err)
	}
	a.remove("linked")
	if _, err := os.Stat(filepath.Join(secret, "0.log")); err != nil {
		a.t.Errorf("what a link leads to: %v", err)
	}
}

// foreignLease: somebody who may write leases writes another holder into the node's.
func (a *attacked) foreignLease() {
	leases := a.c.Client.CoordinationV1().Leases("kube-node-lease")
	_, err := leases.Patch(a.t.Context(), a.n.Name, types.MergePatchType,
		[]byte(`{"spec": {"holderIdentity": "somebody"}}`), metav1.PatchOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	harness.Eventually(a.t, "the node holds its lease", func() error {
		l, err := leases.Get(context.Background(), a.n.Name, metav1.GetOptions{})
		if err == nil && (l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != a.n.Name) {
			err = fmt.Errorf("it is %+v", l.Spec)
		}
		return err
	})
}

// lateTokens: the server that issues tokens does not know the pod yet. The pod waits without an
// event.
func (a *attacked) lateTokens() {
	var asked atomic.Int32
	a.proxy.Instead(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/token") || asked.Add(1) > 3 {
			return false
		}
		faults.Trouble{Answer: http.StatusNotFound}.Say(w)
		return true
	})
	a.pod("tokens", func(p *v1.Pod) { p.Spec.AutomountServiceAccountToken = nil })
	p := await(a.t, a.c, a.c.Namespace, "tokens", runs)
	if all := messagesOf(a.t, a.c, p); strings.Contains(all, "MountVolume") || asked.Load() < 4 {
		a.t.Errorf("after %d requests the pod says %q", asked.Load(), all)
	}
	a.remove("tokens")
}

// refusedWrites: writes fail while reads work, as with an etcd that is full.
func (a *attacked) refusedWrites() {
	var writes atomic.Int32
	code := []int{http.StatusInternalServerError, http.StatusGatewayTimeout,
		http.StatusConflict}[a.random.IntN(3)]
	refuse := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch && r.Method != http.MethodDelete ||
			!strings.Contains(r.URL.Path, "/pods/") {
			return false
		}
		writes.Add(1)
		faults.Trouble{Answer: code}.Say(w)
		return true
	}
	a.proxy.Instead(refuse)
	const pods, lasting = 5, 8 * time.Second
	for i := range pods {
		a.pod(fmt.Sprint("refused", i), nil)
	}
	time.Sleep(lasting)
	// The writes come at once, after 0.2, 0.6, 1.4, 3 and 6.2 s, and at each change of a status, a
	// few for each start of a pod; not every 0.2 s.
	a.t.Logf("%d writes were tried of %d pods in %v", writes.Load(), pods, lasting)
	if n := writes.Load(); n > pods*20 {
		a.t.Errorf("%d writes were tried, want at most %d", n, pods*20)
	}
	a.proxy.Instead(nil)
	for i := range pods {
		await(a.t, a.c, a.c.Namespace, fmt.Sprint("refused", i), runs)
		a.remove(fmt.Sprint("refused", i))
	}
}

// noList: the first lists after a start are invalid, or would end all pods.
func (a *attacked) noList() {
	const empty = `"metadata": {"resourceVersion": "1"}, "items": []}`
	bodies := []string{
		`{}`, `{` + empty, `{"kind": "Status", "apiVersion": "v1", "status": "Success"}`,
		`{"kind": "NodeList", "apiVersion": "v1", ` + empty, `<html>sign in</html>`,
		`{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}`,
		`{"kind": "PodList", "apiVersion": "v1", ` + empty,
	}
	for range 4 { // four lists and one without confirmation
		i := a.random.IntN(len(bodies) - 1)
		bodies = append(bodies[:i], bodies[i+1:]...)
	}
	var lists atomic.Int32
	a.n.Kill()
	a.proxy.Instead(func(w http.ResponseWriter, r *http.Request) bool {
		asked := r.URL.Query()
		switch {
		case r.URL.Path != "/api/v1/pods" || int(lists.Load()) >= len(bodies):
			return false
		case asked.Get("sendInitialEvents") != "": // so that it asks for a list
			faults.Trouble{Answer: http.StatusUnprocessableEntity}.Say(w)
			return true
		case asked.Get("watch") != "":
			return false
		}
		i := int(lists.Add(1)) - 1
		if i >= len(bodies) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(bodies[i]))
		return true
	})
	a.n.Start()
	harness.Eventually(a.t, "wrong lists are asked for again", func() error {
		if n := lists.Load(); int(n) < len(bodies) {
			return fmt.Errorf("%d of %d were", n, len(bodies))
		}
		return nil
	})
}
