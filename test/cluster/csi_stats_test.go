package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestStatsWithoutAnAnswer: while a driver does not say what room its volume has, /stats/summary comes at
// once, has all pods, and goes on with new figures for the volumes of other drivers.
func TestStatsWithoutAnAnswer(t *testing.T) {
	c := rig.Start(t)
	is := harness.New(t)
	is.Settings["volumeStatsAggPeriod"] = "1s"
	rig.Share(t, is.Root)
	n := c.Join(is, "csi-stats")
	n.Start()
	c.AwaitReady(n.Name)
	stories := map[string]*csiStory{}
	for _, name := range []string{"hangs", "answers"} {
		s := &csiStory{Cluster: c, Node: n, events: map[string]bool{},
			csiCase: csiCase{name: name, driver: csidriver.Config{NoAttach: true}}}
		s.furnish(t)
		s.await(t, "the driver is registered", func() error {
			_, err := s.registered(t)
			return err
		})
		stories[name] = s
	}
	stories["hangs"].d.Order(csidriver.Order{Method: "NodeGetVolumeStats", Hang: true})
	for name, s := range stories {
		s.begin(name)
	}
	for name := range stories {
		await(t, c, c.Namespace, name, runs)
	}
	stories["hangs"].await(t, "the driver is asked for the room of its volume", func() error {
		for _, call := range stories["hangs"].d.Calls() {
			if call.Method == "NodeGetVolumeStats" {
				return nil
			}
		}
		return errors.New("it was not called")
	})
	var first time.Time
	harness.Eventually(t, "there are new figures of the other volume", func() error {
		at, err := roomAt(t, c, n, "answers")
		if first.IsZero() {
			first = at
		}
		if err == nil && !at.After(first.Add(3*time.Second)) {
			err = fmt.Errorf("they are of %v, the first of %v", at, first)
		}
		return err
	})
	if at, err := roomAt(t, c, n, "hangs"); err == nil {
		t.Errorf("the driver that hangs said at %v what room its volume has", at)
	}
	stories["hangs"].d.Order()
	for name, s := range stories {
		pod, err := get(t, c, c.Namespace, name)
		if err != nil {
			t.Fatal(err)
		}
		c.MustRun("delete", "pod", name, "--timeout=2m")
		s.ended(t, string(pod.UID))
	}
}

// roomAt returns when the room of the volume of a pod was measured that the node's statistics have. These
// must come soon, with both pods.
func roomAt(t *testing.T, c rig.Cluster, n rig.Node, pod string) (at time.Time, err error) {
	t.Helper()
	began := time.Now()
	raw, err := c.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes", n.Name,
		"proxy/stats/summary").DoRaw(t.Context())
	if err != nil {
		return at, err
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the statistics came after %v", took)
	}
	var said statsapi.Summary
	if err := json.Unmarshal(raw, &said); err != nil {
		t.Fatal(err)
	}
	pods := 0
	err = fmt.Errorf("the statistics have no room of the volume of pod %s", pod)
	for _, p := range said.Pods {
		if p.PodRef.Namespace != c.Namespace {
			continue
		}
		pods++
		for _, v := range p.VolumeStats {
			if p.PodRef.Name == pod && v.Name == "data" && v.CapacityBytes != nil {
				at, err = v.Time.Time, nil
			}
		}
	}
	if pods != 2 {
		return at, fmt.Errorf("the statistics have %d pods of 2", pods)
	}
	return at, err
}
