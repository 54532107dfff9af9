package cluster_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// csiHistory has what the API server ever had of a node's CSI drivers.
type csiHistory struct {
	mu    sync.Mutex // guards the fields below
	lines []string   // without repetitions
}

func (h *csiHistory) add(line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.lines, line) {
		h.lines = append(h.lines, line)
	}
}

// since returns the lines until now, and begins anew.
func (h *csiHistory) since() (lines []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines, h.lines = h.lines, nil
	return lines
}

// followCSINode records each CSINode of the node, and each state of the node's annotation and labels.
func followCSINode(t *testing.T, c rig.Cluster, node string) *csiHistory {
	t.Helper()
	h, one := &csiHistory{}, metav1.SingleObject(metav1.ObjectMeta{Name: node})
	ctx, cancel := context.WithCancel(t.Context())
	csiNodes, err := c.Client.StorageV1().CSINodes().Watch(ctx, one)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := c.Client.CoreV1().Nodes().Watch(ctx, one)
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	for _, w := range []apiwatch.Interface{csiNodes, nodes} {
		ended.Go(func() {
			for e := range w.ResultChan() {
				h.add(string(e.Type) + " " + ofDrivers(e.Object))
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		csiNodes.Stop()
		nodes.Stop()
		ended.Wait()
	})
	return h
}

// ofDrivers returns what an object says of CSI drivers.
func ofDrivers(object any) string {
	switch is := object.(type) {
	case *storagev1.CSINode:
		raw, _ := json.Marshal(is.Spec.Drivers)
		return "CSINode " + string(raw)
	case *v1.Node:
		return fmt.Sprintf("Node ids %s, rack %q", is.Annotations["csi.volume.kubernetes.io/nodeid"],
			is.Labels["csi.test/rack"])
	default:
		return fmt.Sprintf("%T", object)
	}
}

// TestCSINodeOverRestart: while the agent starts again, the node keeps its CSI drivers, those that answer
// late and those that do not come back, with the labels of their topology. A driver whose socket goes is
// removed, and no other one for a moment.
func TestCSINodeOverRestart(t *testing.T) {
	for _, agent := range strings.Split(cmp.Or(os.Getenv("NUMALET_CSI_AGENT"), "numalet"), ",") {
		t.Run(agent, func(t *testing.T) {
			c := rig.Start(t)
			n := csiNodeOf(t, c, agent)
			one := n.CSIDriver(csidriver.Config{Name: "one." + c.Namespace + ".csi.test", NoAttach: true, MaxVolumes: 3,
				Topology: map[string]string{"csi.test/rack": "r1"}})
			two := n.CSIDriver(csidriver.Config{Name: "two." + c.Namespace + ".csi.test", NoAttach: true})
			awaitDrivers(t, c, n, one.Name, two.Name)
			history := followCSINode(t, c, n.Name)
			for _, d := range []*rig.CSIDriver{one, two} {
				before := len(d.Calls())
				d.Order(csidriver.Order{Method: "NodeGetInfo", Delay: 2 * time.Second})
				n.Kill()
				n.Start()
				awaitRegistered(t, d, before)
				d.Order()
			}
			n.Kill()
			two.Process.Stop() // its socket goes while nobody looks
			before := len(one.Calls())
			n.Start()
			awaitRegistered(t, one, before)
			for _, line := range history.since() {
				if !holds(line, one.Name, two.Name) {
					t.Errorf("over restarts there was %s", line)
				}
			}
			one.Process.Stop()
			awaitDrivers(t, c, n, two.Name)
			for _, line := range history.since() {
				if !holds(line, two.Name) {
					t.Errorf("while a driver left there was %s", line)
				}
			}
		})
	}
}

// holds reports whether a line of the history has all of these drivers, and the label of their topology.
func holds(line string, drivers ...string) bool {
	for _, name := range drivers {
		if !strings.Contains(line, `"`+name+`"`) {
			return false
		}
	}
	return !strings.HasPrefix(line, "DELETED") &&
		(strings.Contains(line, "CSINode") || strings.Contains(line, `rack "r1"`))
}

// awaitDrivers waits until the node has these drivers and no others, in its CSINode and its annotation.
func awaitDrivers(t *testing.T, c rig.Cluster, n rig.Node, want ...string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("the node has the drivers %v", want), func() error {
		object, err := c.Client.StorageV1().CSINodes().Get(t.Context(), n.Name, metav1.GetOptions{})
		node, err2 := c.Client.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		ids := node.Annotations["csi.volume.kubernetes.io/nodeid"]
		if len(object.Spec.Drivers) != len(want) || !holds(ofDrivers(object), want...) ||
			strings.Count(ids, ":") != len(want) || !holds(ofDrivers(node), want...) {
			return fmt.Errorf("it has %+v and the ids %s", object.Spec.Drivers, ids)
		}
		return nil
	})
}

// awaitRegistered waits until a driver is told that it is registered, once more after some calls.
func awaitRegistered(t *testing.T, d *rig.CSIDriver, after int) {
	t.Helper()
	harness.Eventually(t, "driver "+d.Name+" is registered again", func() error {
		for _, call := range d.Calls()[after:] {
			if call.Method == "NotifyRegistrationStatus" && call.Done() {
				return nil
			}
		}
		return errors.New("it is not told")
	})
}
