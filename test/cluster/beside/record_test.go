package beside

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// noEviction prevents evictions because of what else runs on the machine.
var noEviction = map[string]string{"memory.available": "1Mi", "nodefs.available": "0%",
	"nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"}

// record is what clients have seen of one agent, as lines to compare: name and value.
type record struct {
	statuses, node, events, metrics, summary map[string]string
}

// recorder runs the pods on a node of one agent.
type recorder struct {
	*testing.T
	cluster rig.Cluster
	node    rig.Node
	plain   words
}

// observe runs the pods on a node of the agent and records what clients see.
func observe(t *testing.T, agent string) (r record) {
	t.Helper()
	c := rig.Start(t)
	n, _, _ := containerdrig.Node(t)
	if agent == "kubelet" {
		rig.StockKubelet(t, n)
	}
	n.Settings["evictionHard"] = noEviction
	w := recorder{t, c, c.Join(n, "beside-"+agent), nil}
	w.plain = newWords(c.Namespace, w.node.Name)
	n.Plugin("example.com/gpu", "--devices=2", "--nodes=0")
	n.Start()
	r.node = w.awaitNode()
	w.start()
	r.statuses = w.statuses()
	r.metrics = w.metrics()
	r.summary = shape(t, n.Get("/stats/summary"))
	c.MustRun("delete", "pod", "plain", "--timeout=1m")
	n.Kill()
	// The agent will find another boot id than its Node has.
	c.MustRun("patch", "node", w.node.Name, "--subresource=status", "--type=merge",
		`--patch={"status":{"nodeInfo":{"bootID":"before"}}}`)
	n.Start()
	r.events = w.events()
	return r
}

// awaitNode waits until the node can run all pods.
func (w recorder) awaitNode() map[string]string {
	w.Helper()
	var node *v1.Node
	harness.Eventually(w, "the node is ready and has devices", func() (err error) {
		node, err = w.cluster.Client.CoreV1().Nodes().Get(context.Background(), w.node.Name,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
			return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
		})
		if !ready || node.Status.Allocatable.Name("example.com/gpu", "").IsZero() {
			return fmt.Errorf("it is %+v", node.Status)
		}
		return nil
	})
	node.Status.Images = nil // they are the runtime's
	return w.plain.flat(w, node.Status)
}

// start makes the pods.
func (w recorder) start() {
	w.Helper()
	w.cluster.Apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: words}, data: {word: hi}}")
	for _, p := range pods {
		made, err := p.object(w.node.Name)
		if err != nil {
			w.Fatalf("pod %s: %v", p.name, err)
		}
		if _, err := w.cluster.Client.CoreV1().Pods(w.cluster.Namespace).Create(w.Context(), made,
			metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
	}
}

// statuses returns the pods' statuses, each once it has settled.
func (w recorder) statuses() map[string]string {
	w.Helper()
	out := map[string]string{}
	for _, p := range pods {
		var now *v1.Pod
		harness.Eventually(w, "pod "+p.name+" has settled", func() (err error) {
			now, err = w.cluster.Client.CoreV1().Pods(w.cluster.Namespace).Get(
				context.Background(), p.name, metav1.GetOptions{})
			if err == nil && !p.settled(now) {
				err = fmt.Errorf("it is %+v", now.Status)
			}
			return err
		})
		for path, is := range w.plain.flat(w, now.Status) {
			out[p.name+path] = is
		}
	}
	return out
}

// metrics returns the metrics of all paths, once probes have answered and logs were measured.
func (w recorder) metrics() map[string]string {
	w.Helper()
	harness.Eventually(w, "probes have answered and logs were measured", func() error {
		for path, name := range map[string]string{
			"/metrics/probes": "prober_probe_duration_seconds_count{",
			"/metrics":        "kubelet_container_log_filesystem_used_bytes{",
		} {
			if !strings.Contains(w.node.Get(path), name) {
				return fmt.Errorf("%s has no %s", path, name)
			}
		}
		return nil
	})
	w.stranger()
	out := map[string]string{}
	for _, path := range []string{"/metrics", "/metrics/cadvisor", "/metrics/probes",
		"/metrics/resource", "/metrics/slis"} {
		for name, is := range families(w.T, w.node.Get(path)) {
			out[path+" "+name] = is
		}
	}
	return out
}

// stranger sends a request with a token, so that the agent asks the API server who its owner is and
// what he may do.
func (w recorder) stranger() {
	w.Helper()
	token := strings.TrimSpace(w.cluster.MustRun("create", "token", "default"))
	r, err := http.NewRequestWithContext(w.Context(), http.MethodGet,
		fmt.Sprintf("https://127.0.0.1:%v/metrics", w.node.Settings["port"]), nil)
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // who answers is known
	}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	answer, err := client.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	if answer.Body.Close(); answer.StatusCode != http.StatusForbidden {
		w.Fatalf("a stranger gets %s", answer.Status)
	}
}

// events returns the events of the pods and the node, once the last has come.
func (w recorder) events() map[string]string {
	w.Helper()
	out := map[string]string{}
	harness.Eventually(w, "the events are there", func() error {
		all, err := w.cluster.Client.CoreV1().Events("").List(context.Background(),
			metav1.ListOptions{})
		if err != nil {
			return err
		}
		starts, came := int32(0), map[string]bool{}
		for _, e := range all.Items {
			of := e.InvolvedObject
			if e.Source.Component != "kubelet" || of.Kind == "Node" && of.Name != w.node.Name ||
				of.Kind == "Pod" && of.Namespace != w.cluster.Namespace {
				continue
			}
			if e.Reason == "Starting" {
				starts += e.Count
			}
			came[of.Name+" "+e.Reason] = true
			out[w.plain.of(fmt.Sprintf("%s %s %s %s %s: %s", of.Kind, of.Name, of.FieldPath, e.Type,
				e.Reason, e.Message))] = "is told"
		}
		for _, p := range pods {
			if !came[p.name+" "+p.event] {
				return fmt.Errorf("pod %s has no %s", p.name, p.event)
			}
		}
		if !came["plain Killing"] || starts < 2 || !came[w.node.Name+" NodeReady"] ||
			!came[w.node.Name+" Rebooted"] {
			return fmt.Errorf("%d starts, %v", starts, came)
		}
		return nil
	})
	return out
}

// shape returns the fields of an answer; of lists those of any element.
func shape(t *testing.T, text string) map[string]string {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, field := range v {
				walk(path+"."+key, field)
			}
		case []any:
			for _, one := range v {
				walk(path+element(one, ""), one)
			}
		default:
			out[path] = fmt.Sprintf("a %T", v)
		}
	}
	walk("", value)
	return out
}
