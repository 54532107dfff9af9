package agent

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	goruntime "runtime"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/node/addresses"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/node/runtimeup"
	"github.com/numalet/numalet/agent/node/shutdown"
	"github.com/numalet/numalet/agent/pods/lifecycle"
	"github.com/numalet/numalet/agent/serving/event"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
)

// hollowKind is the kind of nodes of a built-in machine, and their client of an API server that
// nobody asks anything.
func hollowKind(t *testing.T) (HollowKind, *kubeapi.Client) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	const text = `{apiVersion: v1, kind: Config, current-context: a,
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}],
users: [{name: a, user: {token: a}}], contexts: [{name: a, context: {cluster: a, user: a}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.FromArgs([]string{"--root-dir=" + t.TempDir(), "--kubeconfig=" + kubeconfig,
		"--topology-from=fixture:laptop", "--container-runtime-endpoint=unix:///nonexistent"})
	if err != nil {
		t.Fatal(err)
	}
	kind, err := NewHollowKind(cfg)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubeapi.New(t.Context(), kubeapi.Config{Cluster: cfg.Cluster, Kubelet: &cfg.Kubelet})
	if err != nil {
		t.Fatal(err)
	}
	return kind, kube
}

// memoryRuntime is a runtime that nobody asks anything.
type memoryRuntime struct{ HollowRuntime }

func (memoryRuntime) Changes() <-chan types.UID { return nil }

// A hollow node checks pods with the handlers of a node with a host, in their order.
func TestHollowHandlers(t *testing.T) {
	kind, kube := hollowKind(t)
	hollow, err := kind.Join(t.Context(), HollowConfig{
		Name: "a", Address: "198.18.0.1", Dir: t.TempDir(), Kube: kube,
		Plugins: offlinePlugins{}, Runtime: memoryRuntime{},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := node{self: kind.self, metrics: kind.metrics, events: event.New(t.Context(), "b"), kube: kube}
	if n.store, err = openStore(t.Context(), t.TempDir(), n.events); err != nil {
		t.Fatal(err)
	}
	pleg, err := lifecycle.New(lifecycle.Config{Client: listed{}})
	if err != nil {
		t.Fatal(err)
	}
	h := host{pleg: pleg, short: new(eviction.Pressure), down: new(shutdown.Announced),
		up: runtimeup.New(runtimeup.Config{}, cri.RuntimeStatus{})}
	ends := h.admissionEnds(hollow.own, deviceDomain{changed: new(mailbox.Topic)},
		contentDomain{claims: claimDomain{changed: new(mailbox.Topic)}, needed: new(mailbox.Topic)})
	ends.plugins = offlinePlugins{}
	full := newPods(t.Context(), n, hollow.pods.statuses, podEnds{
		admissionEnds: ends, runtime: memoryRuntime{}, probes: memoryRuntime{},
		volumes: memoryRuntime{}})
	got, want := handlerNames(t, hollow.pods), handlerNames(t, full)
	if !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("a hollow node has the handlers\n%q\nwant\n%q", got, want)
	}
}

// Admission and the node's conditions are made of the same state, which a later eviction adds to.
func TestStateIsOne(t *testing.T) {
	pleg, err := lifecycle.New(lifecycle.Config{Client: listed{}})
	if err != nil {
		t.Fatal(err)
	}
	h := host{pleg: pleg, short: new(eviction.Pressure), down: new(shutdown.Announced),
		addresses: addresses.New(t.Context(), addresses.Config{
			Node: "n", Standalone: true}), up: runtimeup.New(runtimeup.Config{},
			cri.RuntimeStatus{})}
	n := node{self: self{cfg: &config.Config{}}}
	n.cfg.Kubelet.EnableServer = new(bool)
	var f nodestatus.Facts
	h.describe(n)(&f)
	asked := h.admissionEnds(clusterNode{}, deviceDomain{}, contentDomain{}).state()
	if !asked.Equal(f.State) || len(asked.NotReady) == 0 {
		t.Errorf("admission has %+v, the node's conditions %+v", asked, f.State)
	}
}

// handlerNames are the functions that admission of these pods checks with.
func handlerNames(t *testing.T, p podDomain) (names []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = p.queue.Run(ctx) }()
	s, err := p.queue.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range s.Handlers {
		names = append(names, goruntime.FuncForPC(reflect.ValueOf(h).Pointer()).Name())
	}
	return names
}
