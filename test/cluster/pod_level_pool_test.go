package cluster_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/cpumanager/checkpoint"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// poolSettings are those of a node where pods with pod-level resources get pools.
func poolSettings(n *harness.Node) {
	n.Settings["featureGates"] = map[string]bool{"PodLevelResourceManagers": true}
	n.Settings["cpuManagerPolicy"], n.Settings["memoryManagerPolicy"] = "static", "Static"
	n.Settings["topologyManagerPolicy"], n.Settings["topologyManagerScope"] = "single-numa-node", "pod"
	n.Settings["systemReserved"] = map[string]string{"cpu": "1", "memory": "1Gi"}
	n.Settings["evictionHard"] = map[string]string{"memory.available": "0%", "nodefs.available": "0%"}
	n.Settings["reservedMemory"] = []any{
		map[string]any{"numaNode": 0, "limits": map[string]string{"memory": "1Gi"}}}
}

// pooled returns the manifest of a pod with these pod-level resources and containers, each a name and what
// follows in its spec. A name that ends in ~ makes a sidecar.
func pooled(node, name, resources string, containers ...string) string {
	var inits, regular []string
	for _, text := range containers {
		of, more, _ := strings.Cut(text, " ")
		c := fmt.Sprintf(`{name: %s, image: "registry.test/work:1"%s`, strings.TrimSuffix(of, "~"), more)
		if strings.HasSuffix(of, "~") {
			inits = append(inits, c+", restartPolicy: Always}")
		} else {
			regular = append(regular, c+"}")
		}
	}
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {nodeName: %s,
 automountServiceAccountToken: false, terminationGracePeriodSeconds: 1, tolerations: [{operator: Exists}],
 resources: {limits: {%s}, requests: {%[3]s}}, initContainers: [%[4]s], containers: [%[5]s]}}`, name, node, resources,
		strings.Join(inits, ", "), strings.Join(regular, ", "))
}

// all returns where each container runs.
func (o *ownSets) all() map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := map[string]string{}
	for name, set := range o.sets {
		out[name] = set.String()
	}
	return out
}

// TestPodLevelPool: a pod with pod-level resources has a pool to itself, of which one container has a part
// and the others share the rest, also when the agent or its state was lost.
func TestPodLevelPool(t *testing.T) {
	c, n := rig.Start(t), harness.New(t)
	poolSettings(n)
	s := &side{Cluster: c, Node: c.Join(n, "pool")}
	seen := &ownSets{sets: map[string]cpuset.CPUSet{}}
	n.Runtime.Watch(seen.watch)
	s.Start()
	s.AwaitReady(s.Name)
	s.Apply(bound(s.Name, "shares", ""))
	const own = ", resources: {limits: {cpu: 2, memory: 512Mi}}"
	s.Apply(pooled(s.Name, "pool", "cpu: 6, memory: 2Gi", "side~ ", "fast "+own, "slow ", "slower "))
	for _, name := range []string{"shares", "pool"} {
		await(t, c, c.Namespace, name, runs)
	}
	check := func() {
		t.Helper()
		harness.Eventually(t, "containers run where they should", func() error {
			at := seen.all()
			rest, err := cpuset.Parse(at["pool/slow"])
			fast, err2 := cpuset.Parse(at["pool/fast"])
			shares, err3 := cpuset.Parse(at["shares/main"])
			switch {
			case err != nil || err2 != nil || err3 != nil:
			case rest.Size() == 4 && fast.Size() == 2 && rest.Intersection(fast).IsEmpty() &&
				at["pool/slower"] == at["pool/slow"] && at["pool/side"] == at["pool/slow"] &&
				shares.Intersection(rest.Union(fast)).IsEmpty():
				return nil
			}
			return fmt.Errorf("they run on %v", at)
		})
	}
	check()
	before := seen.all()
	awaitPool := func(when string) (cpus string) {
		t.Helper()
		uid := await(t, c, c.Namespace, "pool", runs).UID
		harness.Eventually(t, when+" the kubelet's file has the pool", func() error {
			raw, err := os.ReadFile(filepath.Join(n.Root, checkpoint.FileName))
			if err != nil {
				return err
			}
			state, err := checkpoint.Decode(raw)
			if cpus = state.PodEntries[string(uid)].String(); err == nil && cpus == "" {
				err = fmt.Errorf("it has %v", state.PodEntries)
			}
			return err
		})
		return cpus
	}
	had := awaitPool("at first")
	if set, err := cpuset.Parse(had); err != nil || set.Size() != 6 {
		t.Errorf("the kubelet's file has the pool %q, %v", had, err)
	}

	for _, loses := range []string{"", store.FileName} {
		s.Kill()
		if loses != "" {
			for _, file := range []string{loses, checkpoint.FileName, "memory_manager_state"} {
				if err := os.Remove(filepath.Join(n.Root, file)); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.Start()
		s.AwaitReady(s.Name)
		name := "after" + strings.ReplaceAll(loses, "_", "-")
		s.Apply(bound(s.Name, name, ", resources: {limits: {cpu: 1, memory: 1Gi}}"))
		await(t, c, c.Namespace, name, runs)
		check()
		now := seen.all()
		for container, cpus := range before {
			if strings.HasPrefix(container, "pool/") && now[container] != cpus {
				t.Errorf("%s ran on %s, and runs on %s", container, cpus, now[container])
			}
		}
		if has := awaitPool("after the loss of " + loses); has != had {
			t.Errorf("after the loss of %q the pool is %s, and was %s", loses, has, had)
		}
	}

	s.Apply(pooled(s.Name, "empty", "cpu: 2, memory: 2Gi", "fast "+own, "slow "))
	p := await(t, c, c.Namespace, "empty", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if p.Status.Reason != "EmptyPodSharedPoolError" {
		t.Errorf("a pod that leaves nothing to share: %s, %s", p.Status.Reason, p.Status.Message)
	}
	s.MustRun("delete", "pods", "--all", "--timeout=1m")
}

// TestSwitchPool: a node whose pod has a pool goes from the stock kubelet to numalet, and its containers
// run on where they did. The way back is closed: a kubelet that starts anew rejects pods that have a pool
// with containers that share it, also those of its own.
func TestSwitchPool(t *testing.T) {
	c, n := rig.Start(t), harness.New(t)
	rig.StockKubelet(t, n)
	poolSettings(n)
	// Of some virtual machines both agents read different totals of memory.
	n.Settings["memoryManagerPolicy"] = "None"
	delete(n.Settings, "reservedMemory")
	s := &side{Cluster: c, Node: c.Join(n, "pool-switch")}
	seen := &ownSets{sets: map[string]cpuset.CPUSet{}}
	n.Runtime.Watch(seen.watch)
	s.Start()
	s.AwaitReady(s.Name)
	s.Apply(bound(s.Name, "shares", ""))
	s.Apply(pooled(s.Name, "pool", "cpu: 1, memory: 256Mi", "side~ ", "slow "))
	want := map[string]string{}
	for _, name := range []string{"shares", "pool"} {
		want[name] = containersOf(await(t, c, c.Namespace, name, runs))
	}
	var at map[string]string
	harness.Eventually(t, "the pool is one CPU, on which no other pod runs", func() error {
		at = seen.all()
		pool, err := cpuset.Parse(at["pool/slow"])
		shares, err2 := cpuset.Parse(at["shares/main"])
		if err != nil || err2 != nil || pool.Size() != 1 || at["pool/side"] != at["pool/slow"] ||
			shares.IsEmpty() || !shares.Intersection(pool).IsEmpty() {
			return fmt.Errorf("they run on %v", at)
		}
		return nil
	})
	if err := n.Stop(); err != nil {
		t.Errorf("the kubelet stopped: %v", err)
	}
	n.Program = nil
	s.Start()
	s.AwaitReady(s.Name)
	s.Apply(bound(s.Name, "visitor", ""))
	await(t, c, c.Namespace, "visitor", runs)
	for name, ids := range want {
		if now := containersOf(await(t, c, c.Namespace, name, runs)); now != ids {
			t.Errorf("pod %s has containers %s, and had %s", name, now, ids)
		}
	}
	at["visitor/main"] = at["shares/main"]
	if now := seen.all(); !maps.Equal(now, at) {
		t.Errorf("containers run on %v, and did on %v", now, at)
	}
	s.MustRun("delete", "pods", "--all", "--timeout=1m")
}
