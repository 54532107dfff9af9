package containerd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// awaitQuota waits until all the cgroups have a CPU quota.
func (w world) awaitQuota(want setting, groups ...string) {
	w.t.Helper()
	w.Eventually(fmt.Sprintf("the quota is %s", want.is()), func() error {
		var errs []error
		for _, group := range groups {
			got, err := cgroupFile(group, want.controller, want.name())
			if err == nil && got != want.is() {
				err = fmt.Errorf("that of %s is %s", group, got)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// writeQuota writes a CPU quota, as anybody may who is root.
func (w world) writeQuota(group string, s setting) {
	w.t.Helper()
	dir := filepath.Join("/sys/fs/cgroup/cpu", group)
	if unified() {
		dir = filepath.Join("/sys/fs/cgroup", group)
	}
	if err := os.WriteFile(filepath.Join(dir, s.name()), []byte(s.is()), 0); err != nil {
		w.t.Fatal(err)
	}
}

// TestQuotaFollowsThePolicy: a container that gets CPUs of its own while it runs loses its CPU
// quota, and so does its pod; both have it again when the CPUs are not their own any more. What
// somebody else writes is put right.
func TestQuotaFollowsThePolicy(t *testing.T) {
	needsCPUs(t, 2)
	w := newWorld(t)
	w.Settings["cpuManagerReconcilePeriod"] = "200ms"
	w.Settings["cpuManagerPolicy"] = "none"
	w.Start()
	alone := w.run("alone", simple("--print", `resources: {limits: {cpu: "1", memory: 64Mi}}`))
	half := w.run("half", simple("--print", "resources: {requests: {cpu: 0}, limits: {cpu: 500m}}"))
	groups := func(pod v1.Pod) []string {
		group := w.group(pod, pod.Status.QOSClass)
		return []string{group, filepath.Join(group, w.id(pod, "main"))}
	}
	whole, none, part := quota("100000", "100000"), quota("-1", "max"), quota("50000", "50000")
	w.awaitQuota(whole, groups(alone)...)
	w.awaitQuota(part, groups(half)...)
	under := func(policy string, want setting, updates int) {
		t.Helper()
		before := w.updates()
		w.Kill()
		w.Settings["cpuManagerPolicy"] = policy
		w.Start()
		w.awaitQuota(want, groups(alone)...)
		w.awaitQuota(part, groups(half)...)
		time.Sleep(2 * time.Second) // ten looks
		if now := w.updates(); now != before+updates {
			t.Errorf("under %s there are %d updates, want %d: both containers' sets, one of them "+
				"with its quota", policy, now-before, updates)
		}
	}
	under("static", none, 2)
	for i, group := range groups(alone) {
		before := w.updates()
		w.writeQuota(group, part)
		w.awaitQuota(none, group)
		if now := w.updates(); now != before+i { // the pod's cgroup is the agent's own
			t.Errorf("the repair of %s took %d updates, want %d", group, now-before, i)
		}
		w.Eventually("the repair is counted", func() error {
			want := fmt.Sprintf("\nnumalet_cpu_quota_repairs_total %d\n", i+1)
			if !strings.Contains(w.Get("/metrics"), want) {
				return errors.New("/metrics does not have it")
			}
			return nil
		})
	}
	under("none", whole, 2)
	under("static", none, 2)
	pods, err := w.Pods()
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []v1.Pod{alone, half} {
		if now := pods[before.Name]; w.id(now, "main") != w.id(before, "main") {
			t.Errorf("%s was restarted: %+v", before.Name, w.statusOf(now, "main"))
		}
	}
	w.remove("alone")
	w.remove("half")
}
