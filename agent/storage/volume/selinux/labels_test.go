package selinux

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
)

// lab is a host whose labels are made of the level alone.
func lab(enabled bool) Host {
	return Host{Enabled: func() bool { return enabled },
		FileLabel: func(o *v1.SELinuxOptions) (string, error) {
			if o.Level == "bad" {
				return "", errors.New("no such level")
			}
			return "file:" + o.Level, nil
		}}
}

// having returns a pod whose containers mount the volume v with these levels; "": the pod's.
func having(pod string, containers ...string) *v1.Pod {
	out := podtest.New("", podtest.Spec(v1.PodSpec{SecurityContext: &v1.PodSecurityContext{}}))
	if pod != "" {
		out.Spec.SecurityContext.SELinuxOptions = &v1.SELinuxOptions{Level: pod}
	}
	for _, level := range containers {
		c := v1.Container{VolumeMounts: []v1.VolumeMount{{Name: "v"}}}
		if level != "" {
			c.SecurityContext = &v1.SecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: level}}
		}
		out.Spec.Containers = append(out.Spec.Containers, c)
	}
	return out
}

func volumeOf(modes ...v1.PersistentVolumeAccessMode) *v1.PersistentVolume {
	return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: v1.PersistentVolumeSpec{AccessModes: modes}}
}

// all are the gates as Kubernetes 1.37 has them.
func all(gate string) bool { return strings.HasPrefix(gate, "SELinux") }

// A volume gets the label that all containers with it agree on, unless the pod or the driver wants
// the files labeled one by one.
func TestOf(t *testing.T) {
	once, pod := v1.ReadWriteOnce, v1.ReadWriteOncePod
	recursive := having("a", "")
	recursive.Spec.SecurityContext.SELinuxChangePolicy = ptr.To(v1.SELinuxChangePolicyRecursive)
	other := having("a", "", "b")
	other.Spec.Containers[1].VolumeMounts = nil
	initial := having("", "b")
	initial.Spec.InitContainers = having("", "a").Spec.Containers
	const both = "multiple SELinux labels found: file:a,file:b"
	for name, test := range map[string]struct {
		pod    *v1.Pod
		mode   v1.PersistentVolumeAccessMode
		cannot bool // the driver cannot
		off    string
		want   string
	}{
		"the pod's":                          {pod: having("a", "", ""), mode: once, want: "file:a"},
		"a container's":                      {pod: having("a", "b"), mode: once, want: "file:b"},
		"none":                               {pod: having("", ""), mode: once},
		"one container has none":             {pod: having("", "", "b"), mode: once, want: "file:b"},
		"of a container without the volume":  {pod: other, mode: once, want: "file:a"},
		"two":                                {pod: having("a", "", "b"), mode: once, want: both},
		"of an init container":               {pod: initial, mode: once, want: both},
		"a bad one":                          {pod: having("bad", ""), mode: once, want: "failed to construct SELinux label from context"},
		"the pod wants its files labeled":    {pod: recursive, mode: once},
		"but not without the gate":           {pod: recursive, mode: once, off: "SELinuxChangePolicy", want: "file:a"},
		"the driver cannot":                  {pod: having("a", ""), mode: once, cannot: true},
		"two, which is only a warning":       {pod: having("a", "", "b"), mode: once, off: "SELinuxMount"},
		"two of a pod's own volume":          {pod: having("a", "", "b"), mode: pod, off: "SELinuxMount", want: both},
		"a bad one, which is only a warning": {pod: having("bad", ""), mode: once, off: "SELinuxMount"},
		"without the gate":                   {pod: having("a", ""), mode: pod, off: "SELinuxMountReadWriteOncePod"},
	} {
		l, err := New(lab(true), func(gate string) bool { return all(gate) && gate != test.off }, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Of(test.pod, Volume{Name: "v", PV: volumeOf(test.mode), Supports: !test.cannot})
		if err != nil {
			got = err.Error()
		}
		if got != test.want && (test.want == "" || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	for name, l := range map[string]*Labels{"nil": nil, "off": {host: lab(false), enabled: all}} {
		if got, err := l.Of(having("a", "", "b"), Volume{Name: "v", PV: volumeOf(once), Supports: true}); got != "" ||
			err != nil || l.Enabled() {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// Volumes are mounted with a label by their access modes and the gates.
func TestMounts(t *testing.T) {
	for name, test := range map[string]struct {
		modes     []v1.PersistentVolumeAccessMode
		old, want bool
	}{
		"all":              {[]v1.PersistentVolumeAccessMode{v1.ReadWriteMany}, false, true},
		"once":             {[]v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, true, false},
		"a pod":            {[]v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}, true, true},
		"a pod, or others": {[]v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod, v1.ReadWriteOnce}, true, false},
	} {
		l := &Labels{host: lab(true), enabled: func(gate string) bool { return all(gate) && (!test.old || gate != "SELinuxMount") }}
		if got := l.Mounts(volumeOf(test.modes...)); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// What is refused counts as an error, what will be refused one day as a warning.
func TestMetrics(t *testing.T) {
	r := metrics.NewKubeRegistry()
	old := false
	l, err := New(lab(true), func(gate string) bool { return all(gate) && (!old || gate != "SELinuxMount") }, r)
	if err != nil {
		t.Fatal(err)
	}
	v := Volume{Name: "v", Plugin: "p", PV: volumeOf(v1.ReadWriteOnce, v1.ReadOnlyMany), Supports: true}
	for range 2 {
		for _, pod := range []*v1.Pod{having("bad", ""), having("a", "", "b")} {
			if _, err := l.Of(pod, v); err == nil != old {
				t.Errorf("got %v", err)
			}
		}
		if err := l.Conflict(v, "x", "y"); old == (err != nil) ||
			!old && err.Error() != `conflicting SELinux labels of volume pv: "x" and "y"` {
			t.Errorf("got %v", err)
		}
		l.Admitted(v, "")
		old = true
	}
	l.Admitted(v, "x")
	found, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, f := range found {
		for _, m := range f.GetMetric() {
			labels := ""
			for _, one := range m.GetLabel() {
				labels += " " + one.GetValue()
			}
			if m.GetGauge().GetValue() == 1 {
				got[strings.TrimPrefix(f.GetName(), "volume_manager_selinux_")+labels] = true
			}
		}
	}
	for _, want := range []string{"container_errors_total ROX", "container_warnings_total ROX",
		"pod_context_mismatch_errors_total ROX", "pod_context_mismatch_warnings_total ROX",
		"volume_context_mismatch_errors_total ROX p", "volume_context_mismatch_warnings_total ROX p",
		"volumes_admitted_total ROX p"} {
		if !got[want] {
			t.Errorf("no %s in %v", want, got)
		}
	}
}

// A label with commas is one option.
func TestOption(t *testing.T) {
	if got := Option("system_u:object_r:container_file_t:s0:c1,c2"); got !=
		`context="system_u:object_r:container_file_t:s0:c1,c2"` {
		t.Error(got)
	}
}
