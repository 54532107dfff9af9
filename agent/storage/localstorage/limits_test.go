package localstorage

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/internal/podtest"
)

// empty is an emptyDir; limit "": without one.
func empty(name string, medium v1.StorageMedium, limit string) v1.Volume {
	source := v1.EmptyDirVolumeSource{Medium: medium}
	if limit != "" {
		size := resource.MustParse(limit)
		source.SizeLimit = &size
	}
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &source}}
}

// with makes a pod of containers and volumes.
func with(containers string, volumes ...v1.Volume) *v1.Pod {
	return podtest.New("a", podtest.Containers(strings.Split(containers, ", ")...), podtest.Mounts(volumes...))
}

// space is what is used, in bytes.
func space(n uint64) statsapi.FsStats { return statsapi.FsStats{UsedBytes: &n} }

func fs(n uint64) *statsapi.FsStats { s := space(n); return &s }

// uses is what a pod with an emptyDir "cache" and a container "main" uses.
func uses(volume, rootfs, logs, all uint64) statsapi.PodStats {
	return statsapi.PodStats{
		VolumeStats:      []statsapi.VolumeStats{{Name: "cache", FsStats: space(volume)}},
		Containers:       []statsapi.ContainerStats{{Name: "main", Rootfs: fs(rootfs), Logs: fs(logs)}},
		EphemeralStorage: fs(all),
	}
}

// TestExceeded: which limits count, in which order, and what is said.
func TestExceeded(t *testing.T) {
	const mi = 1 << 20
	cache := empty("cache", "", "10Mi")
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		used statsapi.PodStats
		want string
	}{
		"nothing is limited": {with("main", empty("cache", "", "")), uses(9<<30, 9<<30, 9<<30, 27<<30), ""},
		"as much as allowed": {with("main ephemeral-storage=30Mi", cache), uses(10*mi, 10*mi, 10*mi, 30*mi), ""},
		"a volume, a byte too large": {with("main", cache), uses(10*mi+1, 0, 0, 10*mi),
			`emptydirfs.limit: Usage of EmptyDir volume "cache" exceeds the limit "10Mi". `},
		"the words of the limit": {with("main", empty("cache", "", "1.5Gi")), uses(2<<30, 0, 0, 0),
			`emptydirfs.limit: Usage of EmptyDir volume "cache" exceeds the limit "1536Mi". `},
		"a volume in memory": {with("main", empty("cache", v1.StorageMediumMemory, "10Mi")), uses(11*mi, 0, 0, 0),
			`emptydirfs.limit: Usage of EmptyDir volume "cache" exceeds the limit "10Mi". `},
		"huge pages": {with("main", empty("cache", "HugePages-2Mi", "10Mi")), uses(11*mi, 0, 0, 0),
			`emptydirfs.limit: Usage of EmptyDir volume "cache" exceeds the limit "10Mi". `},
		"a volume with a limit of zero has none": {with("main", empty("cache", "", "0")), uses(9, 0, 0, 9), ""},
		"a volume that is not measured":          {with("main", empty("other", "", "1")), uses(9, 0, 0, 9), ""},
		"the pod before a container": {with("main ephemeral-storage=10Mi", cache), uses(5*mi, 6*mi, 6*mi, 17*mi),
			"ephemeralpodfs.limit: Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. "},
		"the volume before the pod": {with("main ephemeral-storage=10Mi", cache), uses(11*mi, 0, 0, 11*mi),
			`emptydirfs.limit: Usage of EmptyDir volume "cache" exceeds the limit "10Mi". `},
		"limits of containers add up, those of init containers do not": {
			with("first! ephemeral-storage=20Mi, main ephemeral-storage=10Mi, side ephemeral-storage=15Mi"),
			uses(0, 0, 0, 26*mi),
			"ephemeralpodfs.limit: Pod ephemeral local storage usage exceeds the total limit of containers 25Mi. "},
		"a container beside one with more": {with("main ephemeral-storage=10Mi, side ephemeral-storage=20Mi"),
			uses(0, 6*mi, 5*mi, 11*mi),
			`ephemeralcontainerfs.limit: Container main exceeded its local ephemeral storage limit "10Mi". `},
		"a sidecar": {with("main~ ephemeral-storage=10Mi, other ephemeral-storage=20Mi"), uses(0, 11*mi, 0, 11*mi),
			`ephemeralcontainerfs.limit: Container main exceeded its local ephemeral storage limit "10Mi". `},
		"an init container has no limit of its own": {
			with("main! ephemeral-storage=10Mi, other ephemeral-storage=20Mi"), uses(0, 11*mi, 0, 11*mi), ""},
		"a pod may have no storage at all": {with("main ephemeral-storage=0"), uses(0, 0, 1, 1),
			"ephemeralpodfs.limit: Pod ephemeral local storage usage exceeds the total limit of containers 0. "},
	} {
		got := ""
		if e, exceeds := Exceeded(tc.pod, &tc.used, false, false); exceeds {
			got = e.Signal + ": " + e.Message
		}
		if got != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, tc.want)
		}
	}
}

// TestExceededWhereImagesAreApart: writable layers then count for the pod and not for a container.
func TestExceededWhereImagesAreApart(t *testing.T) {
	pod := with("main ephemeral-storage=10, other ephemeral-storage=100")
	used := uses(0, 11, 9, 20)
	if e, exceeds := Exceeded(pod, &used, true, false); exceeds {
		t.Errorf("it says %s", e.Message)
	}
	if _, exceeds := Exceeded(pod, &used, false, false); !exceeds {
		t.Error("without it nothing is exceeded")
	}
	used = uses(0, 0, 11, 11)
	if _, exceeds := Exceeded(pod, &used, true, false); !exceeds {
		t.Error("logs do not count")
	}
}

// TestExceededOfUnknown: what is not measured exceeds nothing.
func TestExceededOfUnknown(t *testing.T) {
	used := statsapi.PodStats{VolumeStats: []statsapi.VolumeStats{{Name: "cache"}},
		Containers: []statsapi.ContainerStats{{Name: "main"}}}
	if e, exceeds := Exceeded(with("main ephemeral-storage=1", empty("cache", "", "1")), &used, false, false); exceeds {
		t.Errorf("it says %s", e.Message)
	}
}
