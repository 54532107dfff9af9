package metrics

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/prometheus/common/expfmt"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// exposed returns the lines of metrics with that prefix.
func exposed(t *testing.T, r metrics.KubeRegistry, prefix string) string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), prefix) {
			if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// A measurement replaces the previous one, so that volumes that are gone disappear.
func TestVolumesMeasured(t *testing.T) {
	m, registry := fresh(t)
	m.Volumes(volume.Measured{Desired: map[string]int{"kubernetes.io/secret": 7},
		Rooms: []volume.VolumeRoom{{Namespace: "shop", PVC: "gone"}}})
	m.Volumes(volume.Measured{
		Desired: map[string]int{"kubernetes.io/nfs": 2}, Actual: map[string]int{"kubernetes.io/nfs": 1},
		Rooms: []volume.VolumeRoom{{Namespace: "shop"}, {Namespace: "shop", PVC: "data", Room: diskusage.Room{
			Capacity: 10, Available: 6, Used: 3, Inodes: 5, InodesFree: 4, InodesUsed: 1}}},
	})
	const total = `volume_manager_total_volumes{plugin_name="kubernetes.io/nfs",state="actual_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/nfs",state="desired_state_of_world"} 2
`
	if got := exposed(t, registry, "volume_manager_"); got != total {
		t.Errorf("got\n%s", got)
	}
	const of = `{namespace="shop",persistentvolumeclaim="data"} `
	want := ""
	for _, line := range []string{"available_bytes 6", "capacity_bytes 10", "inodes 5",
		"inodes_free 4", "inodes_used 1", "used_bytes 3"} {
		name, value, _ := strings.Cut(line, " ")
		want += "kubelet_volume_stats_" + name + of + value + "\n"
	}
	if got := exposed(t, registry, "kubelet_volume_stats_"); got != want {
		t.Errorf("got\n%s", got)
	}
	m.VolumeLooked("kubernetes.io/nfs", time.Millisecond)
	if got := exposed(t, registry, "kubelet_volume_metric_"); !strings.Contains(got,
		`_count{metric_source="kubernetes.io/nfs"} 1`) {
		t.Errorf("got\n%s", got)
	}
}

// Mounts of images count once the images were pulled; the runtime decides whether they succeed.
func TestImageVolumesCounted(t *testing.T) {
	image := v1.Volume{Name: "i", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{}}}
	pod := podtest.New("", podtest.Containers("c"), podtest.Mounts(image, v1.Volume{Name: "e"}))
	mounts := &pod.Spec.Containers[0].VolumeMounts
	*mounts = append(*mounts, v1.VolumeMount{Name: "i"})
	refused := "failed to mount image volume: " + crierrors.ErrImageVolumeMountFailed.Error() + ": x"
	for name, test := range map[string]struct {
		err  error
		want string // requested, succeeded, failed
	}{
		"created":         {nil, "2 2 0"},
		"not started":     {&cri.StartError{Reason: cri.ReasonRunContainer}, "2 2 0"},
		"refused":         {&cri.StartError{Reason: cri.ReasonCreateContainer, Message: refused}, "2 0 2"},
		"refused for all": {&cri.StartError{Reason: cri.ReasonCreateContainer}, "2 0 0"},
		"not pulled":      {&cri.StartError{Reason: cri.ReasonImagePull}, "0 0 0"},
		"something else":  {errors.New("x"), "0 0 0"},
	} {
		m, registry := fresh(t)
		m.Started(pod, &pod.Spec.Containers[0], test.err)
		var got []string
		for _, counter := range []string{"requested", "mounted_succeed", "mounted_errors"} {
			_, value, _ := strings.Cut(exposed(t, registry,
				"kubelet_image_volume_"+counter), " ")
			got = append(got, strings.TrimSpace(value))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %q, want %s", name, got, test.want)
		}
	}
}
