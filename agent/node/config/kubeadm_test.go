package config

import (
	"strings"
	"testing"

	"k8s.io/component-base/metrics"
)

// TestKubeadm: nothing of what kubeadm 1.37 writes is without effect, most of which has the value
// that it has anyway (kubeadm config print init-defaults --component-configs KubeletConfiguration).
func TestKubeadm(t *testing.T) {
	const file = "--config=testdata/kubeadm-1.37.yaml"
	if got := mustLoad(t, t.TempDir(), file).Unhonoured(); len(got) > 0 {
		t.Errorf("without effect: %q", got)
	}
	got := mustLoad(t, t.TempDir(), file, "--volume-plugin-dir=/x").Unhonoured()
	if len(got) != 1 || !strings.HasPrefix(got[0], "--volume-plugin-dir ") {
		t.Errorf("without effect: %q, want the flag", got)
	}
}

// TestNegativeGracePeriod: a kubelet starts with it, too.
func TestNegativeGracePeriod(t *testing.T) {
	got := mustLoad(t, t.TempDir(), "--eviction-max-pod-grace-period=-1").Kubelet.EvictionMaxPodGracePeriod
	if got != -1 {
		t.Errorf("evictionMaxPodGracePeriod is %d", got)
	}
}

// TestApplyMetrics: hidden metrics are shown if that is wanted.
func TestApplyMetrics(t *testing.T) {
	dir := t.TempDir()
	mustLoad(t, dir).ApplyMetrics()
	if metrics.ShouldShowHidden() {
		t.Fatal("hidden metrics are shown")
	}
	write(t, dir, map[string]string{"k.yaml": head + "showHiddenMetricsForVersion: \"1.36\"\n"})
	mustLoad(t, dir, "--config=%dir%/k.yaml").ApplyMetrics()
	if !metrics.ShouldShowHidden() {
		t.Error("hidden metrics are not shown")
	}
}
